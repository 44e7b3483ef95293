"""The processes that work on one run: by default this one, alone.

Code that may run in several processes asks its crew and never torch: a process on its own then
pays nothing, loads nothing and computes what it always did. ``fourge.shard.ranks`` has the crew
of more than one.
"""

from collections.abc import Sequence
from typing import Any


class Crew:
    """A crew of one."""

    rank = 0
    size = 1
    here = 1  # how many of them share this machine

    @property
    def is_first(self) -> bool:
        """Whether this process writes the record and speaks to the user."""
        return self.rank == 0

    def sums(self, values: Sequence[float]) -> list[float]:
        """Each value summed over the crew: the same numbers in every process."""
        return list(values)

    def any(self, flag: bool) -> bool:
        """Whether any of the crew says so."""
        return self.sums([float(flag)])[0] > 0

    def of_first(self, value: Any) -> Any:
        """What the first of the crew gave."""
        return value


ALONE = Crew()
