"""How much memory a run may have, and where that number comes from.

By default: what the machine could give now, less a floor that stays free for everything else. On a
machine with one pool of memory the floor is what keeps it from freezing. ``memory.limit`` bounds
what is in use on the machine, this run included, as the guard holds it to.
"""

from dataclasses import dataclass

from fourge.core.units import size
from fourge.guard.counters import Counters, Reading
from fourge.guard.policy import default_floor
from fourge.memory.meter import Memory


@dataclass(frozen=True, slots=True)
class Limit:
    nbytes: int
    source: str


def machine_limit(asked: int | None = None, floor: int | None = None) -> Limit:
    """What a run may take now, on this machine."""
    with Counters() as counters:
        return limit_of(counters.read(), asked, floor)


def limit_of(reading: Reading, asked: int | None, floor: int | None) -> Limit:
    """The smaller of what stays above the floor and what stays below the limit asked for."""
    kept = default_floor(reading.capacity) if floor is None else floor
    memory = Memory(reading)
    left = f"{size(memory.left)} left ({memory.source()}) less a floor of {size(kept)}"
    limit = Limit(max(0, memory.left - kept), left)
    if asked is None:
        return limit
    used = reading.total - reading.available
    below = Limit(max(0, asked - used), f"{size(asked)} asked for, less {size(used)} in use now")
    return min(below, limit, key=lambda each: each.nbytes)
