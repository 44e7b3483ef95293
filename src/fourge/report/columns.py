"""The numbers of many rows, a column for each name: 8 bytes a number, however long the run is.

A name that is not in a row is NaN there. Rows come in order of ``key``; a row that comes again
(a run was resumed from an older checkpoint) takes the place of the old one and of all after it.
"""

import math
from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence


class Columns:
    """Grows row by row."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.repeated = 0  # rows that were replaced
        self._values = {key: array("d")}

    def __len__(self) -> int:
        return len(self._values[self.key])

    def add(self, row: Mapping[str, float]) -> None:
        """Append; ``row`` must have the key."""
        self._cut(row[self.key])
        count = len(self)
        for name in row:
            if name not in self._values:
                self._values[name] = array("d", [math.nan]) * count
        for name, values in self._values.items():
            values.append(row.get(name, math.nan))

    def _cut(self, key: float) -> None:
        keys = self._values[self.key]
        if not keys or keys[-1] < key:
            return
        at = bisect_left(keys, key)
        self.repeated += len(keys) - at
        for values in self._values.values():
            del values[at:]

    def names(self) -> list[str]:
        """Of the columns that hold a number."""
        return [name for name in self._values if any(map(math.isfinite, self[name]))]

    def __getitem__(self, name: str) -> Sequence[float]:
        """A column; all NaN if there is no such name."""
        return self._values.get(name) or array("d", [math.nan]) * len(self)

    def points(self, x: str, y: str) -> tuple[list[float], list[float]]:
        """The pairs of two columns in which both are numbers."""
        pairs = [
            pair
            for pair in zip(self[x], self[y], strict=True)
            if math.isfinite(pair[0]) and math.isfinite(pair[1])
        ]
        return [one for one, _ in pairs], [two for _, two in pairs]
