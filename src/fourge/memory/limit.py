"""How much memory a run may have, and where that number comes from.

By default: what the machine could give now, less a floor that stays free for everything else. On a
machine with one pool of memory the floor is what keeps it from freezing.
"""

import os
from dataclasses import dataclass

from fourge.core.process import available_bytes
from fourge.core.units import size

GIB = 1 << 30
LARGE_MACHINE, LARGE_FLOOR = 64 * GIB, 8 * GIB
SMALLEST_FLOOR = GIB // 2


@dataclass(frozen=True, slots=True)
class Limit:
    nbytes: int
    source: str


def machine_limit(asked: int | None) -> Limit:
    """The limit that was asked for, or what is available less the floor."""
    if asked is not None:
        return Limit(asked, f"{size(asked)}, as asked for")
    available, floor = available_bytes(), floor_bytes(total_bytes())
    source = f"MemAvailable {size(available)} less a floor of {size(floor)}"
    return Limit(max(0, available - floor), source)


def floor_bytes(total: int) -> int:
    """What is left to the rest of a machine of this size."""
    return LARGE_FLOOR if total >= LARGE_MACHINE else max(SMALLEST_FLOOR, total // 10)


def total_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
