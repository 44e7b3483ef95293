"""Files put together in stated shares, as one new file, and the shares as counted afterwards.

Each file gives its share of the rows, exactly (rounded by the largest remainder); no row of it
comes twice before all have come once. By default the mixture is as long as it can be without any
row coming twice.

A share of rows is not a share of tokens, and a file's label is not what it holds; so what is said
afterwards is counted from the written rows: rows, characters, and rows that teach an identity.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from fourge.core.errors import ConfigError
from fourge.core.files import refuse_existing, whole_file
from fourge.data.order import divided, permutation
from fourge.data.records import Example, read_examples
from fourge.data.selves import common_name, teaches_self


@dataclass(frozen=True, slots=True)
class Part:
    """What became of one file."""

    path: Path
    rows: int  # it has
    drawn: int  # of the mixture
    characters: int  # of the mixture's answers


@dataclass(frozen=True, slots=True)
class Mixed:
    """A mixture as counted."""

    out: Path
    rows: int
    parts: tuple[Part, ...]
    identity_rows: int

    @property
    def characters(self) -> int:
        return sum(part.characters for part in self.parts)


def mix(
    files: Sequence[tuple[Path, float]],
    out: Path,
    *,
    rows: int | None = None,
    seed: int = 0,
    overwrite: bool = False,
) -> Mixed:
    """Write a mixture of files with these weights.

    Raises:
        ConfigError: the weights cannot be, or the output is one of the inputs.
        DataError: a file cannot be read, or has bad lines.
        OutputError: the output exists.
    """
    refuse_existing(out, overwrite=overwrite)
    if any(out.resolve() == path.resolve() for path, _ in files):
        raise ConfigError(f"{out} is one of the inputs.", why="an input is never modified")
    examples = [read_examples(path) for path, _ in files]
    counts = tuple(map(len, examples))
    weights = tuple(weight for _, weight in files)
    divided(1, weights)  # refuses weights that cannot be
    total = rows if rows is not None else _longest(counts, weights)
    if total < 1:
        raise ConfigError(f"A mixture of {total} rows is none.")
    drawn = _drawn(counts, divided(total, weights), seed)
    chosen = [examples[file][row] for file, row in drawn]
    with whole_file(out, overwrite=overwrite) as temporary:
        temporary.write_text("".join(map(_line, chosen)), encoding="utf-8")
    parts = [_part(path, at, examples[at], drawn) for at, (path, _) in enumerate(files)]
    answers = [example.turns[-1].content for example in chosen]
    name = common_name(answers)
    return Mixed(out, total, tuple(parts), sum(teaches_self(text, name) for text in answers))


def _longest(counts: Sequence[int], weights: Sequence[float]) -> int:
    """The most rows of which none is drawn twice."""
    whole = sum(map(Fraction, weights))
    limits = [
        count * whole / Fraction(weight)
        for count, weight in zip(counts, weights, strict=True)
        if weight
    ]
    return max(1, math.floor(min(limits)))


def _drawn(counts: Sequence[int], draws: Sequence[int], seed: int) -> list[tuple[int, int]]:
    """Files and rows, shuffled: each file in laps through all its rows."""
    rows = []
    for file, (count, wanted) in enumerate(zip(counts, draws, strict=True)):
        for lap in range(math.ceil(wanted / count)):
            order = permutation(f"{seed}/file {file}/pass {lap}", count)
            rows += [(file, row) for row in order[: wanted - lap * count]]
    return [rows[at] for at in permutation(f"{seed}/mixture", len(rows))]


def _line(example: Example) -> str:
    messages = [{"role": turn.role, "content": turn.content} for turn in example.turns]
    row = {"messages": messages, "source": example.source}
    return json.dumps(row, ensure_ascii=False) + "\n"


def _part(
    path: Path, file: int, examples: Sequence[Example], drawn: Sequence[tuple[int, int]]
) -> Part:
    rows = [row for each, row in drawn if each == file]
    characters = sum(len(examples[row].turns[-1].content) for row in rows)
    return Part(path, len(examples), len(rows), characters)
