"""Files as real machines show them: a DGX Spark, a laptop, containers."""

import os
from pathlib import Path

GIB = 1 << 30

# The first lines and the ones we read; of a machine with 128 GB that the GPU shares.
SPARK = """\
MemTotal:       125513872 kB
MemFree:        48230912 kB
MemAvailable:   116820344 kB
Buffers:          312004 kB
Cached:         67544180 kB
SwapCached:            0 kB
Active:         12093028 kB
Inactive:       59871116 kB
Unevictable:       31696 kB
SwapTotal:      16777212 kB
SwapFree:       16770044 kB
Dirty:               516 kB
HugePages_Total:       0
Hugepagesize:       2048 kB
"""


def meminfo(*, total: int, available: int, free: int | None = None) -> str:
    free = available // 2 if free is None else free
    return (
        f"MemTotal:       {total // 1024} kB\n"
        f"MemFree:        {free // 1024} kB\n"
        f"MemAvailable:   {available // 1024} kB\n"
        "Buffers:          145100 kB\nSwapTotal:             0 kB\nSwapFree:              0 kB\n"
    )


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")
    return root


def v2(folder: str, *, limit: str, current: int, inactive_file: int) -> dict[str, str]:
    return {
        f"{folder}/memory.max": f"{limit}\n",
        f"{folder}/memory.high": "1073741824\n",
        f"{folder}/memory.current": f"{current}\n",
        f"{folder}/memory.stat": (
            f"anon {current}\nfile 9999999\nkernel_stack 65536\n"
            f"inactive_anon 1\nactive_anon 2\ninactive_file {inactive_file}\nactive_file 7\n"
        ),
    }


def v1(folder: str, *, limit: int, usage: int, inactive_file: int) -> dict[str, str]:
    return {
        f"{folder}/memory.limit_in_bytes": f"{limit}\n",
        f"{folder}/memory.usage_in_bytes": f"{usage}\n",
        f"{folder}/memory.stat": (
            "cache 5\nrss 6\ninactive_file 123\n"
            f"hierarchical_memory_limit {limit}\ntotal_cache 5\ntotal_rss 6\n"
            f"total_inactive_anon 1\ntotal_inactive_file {inactive_file}\ntotal_active_file 7\n"
        ),
    }


class Machine:
    """A machine of 64 GiB whose available memory a test sets while a guard looks on."""

    def __init__(self, root: Path, available: int = 40 * GIB) -> None:
        self.root = root
        self.meminfo = write(root, {"proc/meminfo": " "}) / "proc/meminfo"
        self.set(available)

    def set(self, available: int) -> None:
        self.put(meminfo(total=64 * GIB, available=available))

    def put(self, text: str) -> None:
        """In one write, in place: the guard keeps the file open and must not see half of it."""
        descriptor = os.open(self.meminfo, os.O_WRONLY)
        os.pwrite(descriptor, text.ljust(400).encode("ascii"), 0)
        os.close(descriptor)
