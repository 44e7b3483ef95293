"""What this process holds in memory, and held at most: Linux's own numbers.

``peak_bytes`` is since the last ``reset_peak``, which asks the kernel to forget the highest
value (no privilege is needed for one's own process). Where /proc is missing, all are zero.
"""

import ctypes
from contextlib import suppress
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_MEMINFO = Path("/proc/meminfo")


def resident_bytes() -> int:
    """Memory of this process that is in RAM now."""
    return _kib(_STATUS, "VmRSS:") * 1024


def peak_bytes() -> int:
    """The most that was in RAM at once since the last ``reset_peak``."""
    return _kib(_STATUS, "VmHWM:") * 1024


def reset_peak() -> None:
    with suppress(OSError):  # a kernel without it keeps the peak of the whole process
        _CLEAR.write_text("5", encoding="ascii")


def trim_heap() -> None:
    """Give what the C library keeps of freed memory back to the system: after loading, say."""
    with suppress(OSError, AttributeError):  # another C library has no such call
        ctypes.CDLL(None).malloc_trim(0)


def available_bytes() -> int:
    """Memory of the machine that could still be had without swapping."""
    return _kib(_MEMINFO, "MemAvailable:") * 1024


def _kib(path: Path, field: str) -> int:
    if not path.exists():
        return 0
    for line in path.read_text(encoding="ascii").splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    return 0
