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
_M_MMAP_THRESHOLD = -3  # of glibc's mallopt


def resident_bytes() -> int:
    """Memory of this process that is in RAM now."""
    return _kib(_STATUS, "VmRSS:") * 1024


def peak_bytes() -> int:
    """The most that was in RAM at once since the last ``reset_peak``."""
    return _kib(_STATUS, "VmHWM:") * 1024


def reset_peak() -> None:
    with suppress(OSError):  # a kernel without it keeps the peak of the whole process
        _CLEAR.write_text("5", encoding="ascii")


def return_freed_memory() -> None:
    """Have the C library give every freed block of a megabyte or more back at once.

    By default it learns to keep blocks of up to 32 MiB for reuse, and the holes between tensors
    that stay add up: 12 % of a training step's peak, measured on a 0.6B model.
    """
    with suppress(OSError, AttributeError):  # another C library does as it does
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 1 << 20)


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
