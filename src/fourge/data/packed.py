"""Rendered rows of one file, end to end in two flat arrays: 5 bytes a token instead of some 40."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from fourge.data.render import Rendered


@dataclass(slots=True)
class PackedRows:
    """Rows to be added at the end and read at any place."""

    token: "array[int]" = field(default_factory=lambda: array("i"))
    is_target: bytearray = field(default_factory=bytearray)  # 1 for a target
    start: "array[int]" = field(default_factory=lambda: array("q", [0]))  # and the end of the last
    source: list[str] = field(default_factory=list)
    untaught: "array[int]" = field(default_factory=lambda: array("i"))

    def add(self, rendered: Rendered) -> None:
        self.token.extend(rendered.token)
        self.is_target.extend(rendered.is_target)
        self.start.append(len(self.token))
        self.source.append(rendered.source)
        self.untaught.append(rendered.untaught)

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, row: int) -> Rendered:
        part = slice(self.start[row], self.start[row + 1])
        marks = tuple(map(bool, self.is_target[part]))
        return Rendered(tuple(self.token[part]), marks, self.source[row], self.untaught[row])

    def lengths(self) -> Iterator[int]:
        """Of each row, in tokens."""
        return (self.start[row + 1] - self.start[row] for row in range(len(self)))
