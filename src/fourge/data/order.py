"""Which row comes when: a pure function of the draw's number, so a resumed run needs no state.

An epoch has as many draws as there are rows. Of these, file i gets

    c_i = its rows                                      without weights
    c_i = epoch * weight_i / sum(weights), rounded      with weights

rounded by the largest remainder, so that the counts add up exactly. Draw j of file i in epoch e
is the file's draw number k = e * c_i + j, and walks through the file's own rows without
end: row ``shuffled(pass k // n_i)[k % n_i]``. So every row of a file is drawn once before any is
drawn twice, whatever the weights, and weights change how often a file is asked, never which rows
it gives.

**Even, not only random.** A batch is a sample, and what it has too much of pushes the weights
about. The files' draws therefore interleave at even distances, so that every batch has its share of
each; and a pass through a file is shuffled in ``PARTS`` parts of rows that stand together, of which
each sixteen draws have one: files are often sorted by language or by subject.

A permutation is a sort by numbers from ``random.Random(text).random()``, the one sequence that
Python promises to keep from version to version. Walking costs O(1) a draw: the permutations in
use are kept, one a file and one for the epoch.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

from fourge.core.errors import ConfigError

PARTS = 16
_LAYOUT = -1  # the cache's key for the epoch's layout, beside the files' numbers


@dataclass(frozen=True, slots=True)
class Mixture:
    """Files of so many rows, asked in these proportions."""

    rows: tuple[int, ...]
    weights: tuple[float, ...] | None = None  # shares of the draws; None: as many as rows
    seed: int = 0
    shuffle: bool = True
    draws: tuple[int, ...] = field(init=False)  # of each file, per epoch
    _kept: dict[int, tuple[int, list[int]]] = field(
        init=False, compare=False, repr=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        if not self.rows or min(self.rows) < 1:
            raise ConfigError(f"The files have {self.rows} rows; each must have at least one.")
        draws = self.rows if self.weights is None else _shares(self.rows, self.weights)
        object.__setattr__(self, "draws", draws)

    @property
    def epoch_size(self) -> int:
        return sum(self.rows)

    def draw(self, index: int) -> tuple[int, int]:
        """The file and the row of a draw, counted from 0 over all epochs."""
        if index < 0:
            raise ValueError(f"draw {index}")
        epoch, place = divmod(index, self.epoch_size)
        layout = self._keep(_LAYOUT, 0, self._layout)
        file, nth = divmod(layout[place], self.epoch_size)
        number = epoch * self.draws[file] + nth
        lap, at = divmod(number, self.rows[file])
        if not self.shuffle:
            return file, at
        name = f"{self.seed}/file {file}/pass {lap}"
        return file, self._keep(file, lap, lambda: even_permutation(name, self.rows[file]))[at]

    def _layout(self) -> list[int]:
        """Of each place in an epoch, ``file * epoch_size + nth draw of that file``."""
        seen = [0] * len(self.draws)
        layout = []
        for file in _spread(self.draws):
            layout.append(file * self.epoch_size + seen[file])
            seen[file] += 1
        return layout

    def _keep(self, key: int, number: int, make: Callable[[], list[int]]) -> list[int]:
        if key not in self._kept or self._kept[key][0] != number:
            self._kept[key] = (number, make())
        return self._kept[key][1]


def permutation(name: str, count: int) -> list[int]:
    """The numbers below ``count`` in an order that the name alone decides."""
    generator = random.Random(name)
    key = [generator.random() for _ in range(count)]
    return sorted(range(count), key=key.__getitem__)


def even_permutation(name: str, count: int, parts: int = PARTS) -> list[int]:
    """The same, of which each ``parts`` have one number of each part of the range."""
    shuffled = permutation(name, count)
    turn, taken = [0] * count, [0] * parts
    for number in shuffled:
        part = number * parts // count
        turn[number], taken[part] = taken[part], taken[part] + 1
    return sorted(shuffled, key=turn.__getitem__)


def _spread(draws: tuple[int, ...]) -> list[int]:
    """Each file's number as often as it is drawn, at even distances: draw j at (j + 1/2) / c."""
    whole = math.lcm(*(count for count in draws if count))
    places = [
        ((2 * nth + 1) * (whole // count), file)
        for file, count in enumerate(draws)
        for nth in range(count)
    ]
    return [file for _, file in sorted(places)]


def divided(total: int, weights: tuple[float, ...]) -> tuple[int, ...]:
    """So many rows by weight, rounded by the largest remainder.

    Raises:
        ConfigError: a weight is negative or not finite, or all are zero.
    """
    if not all(math.isfinite(weight) and weight >= 0 for weight in weights) or not any(weights):
        raise ConfigError(
            f"The weights are {weights}.",
            why="a weight is a share of the draws: 0 or more, and not all of them 0",
            fix="change data.mix",
        )
    whole = sum(map(Fraction, weights))
    exact = [total * Fraction(weight) / whole for weight in weights]
    draws = [math.floor(share) for share in exact]
    by_remainder = sorted(range(len(weights)), key=lambda file: draws[file] - exact[file])
    for file in by_remainder[: total - sum(draws)]:
        draws[file] += 1
    return tuple(draws)


def _shares(rows: tuple[int, ...], weights: tuple[float, ...]) -> tuple[int, ...]:
    if len(weights) != len(rows):
        raise ConfigError(f"{len(weights)} weights are given for {len(rows)} files.")
    draws = divided(sum(rows), weights)
    for file, weight in enumerate(weights):
        if weight and not draws[file]:
            share = sum(rows) * weight / sum(weights)
            raise ConfigError(
                f"File {file + 1} of the mixture would never be drawn.",
                why=f"its share of an epoch of {sum(rows)} rows is {share:.2g} rows",
                fix="raise its weight, or set it to 0",
            )
    return draws
