"""Ranks that are only said to be several: what they say to each other is given."""

from typing import Any

from fourge.shard.ranks import Ranks


class Said(Ranks):
    """One rank; ``others`` are what the rest answers, whatever is asked."""

    def __init__(self, rank: int, *others: Any) -> None:
        self.rank, self.size, self._others = rank, len(others) + 1, others

    def everyones(self, value: Any) -> list[Any]:
        found = list(self._others)
        found.insert(self.rank, value)
        return found

    def of_first(self, value: Any) -> Any:
        return self.everyones(value)[0]

    def meet(self) -> None:
        pass
