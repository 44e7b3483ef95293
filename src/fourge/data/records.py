"""What a row of training data says: a conversation that ends with the answer to be learned.

| file               | a row                                                              |
|--------------------|--------------------------------------------------------------------|
| ``.tsv``, ``.txt`` | ``prompt<TAB>target``; a line that starts with ``#`` is a comment  |
| ``.jsonl``         | one JSON object a line, in one of the three shapes below           |
| ``.json``          | a list of such objects, or the same as ``.jsonl``                  |

    {"prompt": "...", "response": "..."}
    {"messages": [{"role": "user", "content": "..."}, ...]}
    {"conversations": [{"from": "human", "value": "..."}, ...]}

Text is taken as it stands: nothing is stripped, joined or guessed. A row that cannot be taken
so is refused, and all the bad rows of a file are named in one error, because a file is mended
in one sitting.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from fourge.core.errors import DataError
from fourge.data.rows import json_rows, jsonl_rows, tsv_rows

ROLES = ("system", "user", "assistant")
SHOWN = 10  # problems named in one error
_READERS = {".tsv": tsv_rows, ".txt": tsv_rows, ".jsonl": jsonl_rows, ".json": json_rows}


@dataclass(frozen=True, slots=True)
class Message:
    """What one speaker says; it may be nothing."""

    role: str  # one of ROLES
    content: str

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise DataError(f"the role is {self.role!r}; it must be one of {', '.join(ROLES)}")
        try:
            self.content.encode()
        except UnicodeEncodeError as error:
            raise DataError(f"the {self.role}'s text has half a surrogate pair") from error


@dataclass(frozen=True, slots=True)
class Turn(Message):
    """A message to learn from. Only a system's text may be empty."""

    def __post_init__(self) -> None:
        Message.__post_init__(self)
        if not self.content.strip() and self.role != "system":
            raise DataError(f"the {self.role}'s text is empty")


@dataclass(frozen=True, slots=True)
class Example:
    """A conversation whose assistant turns are to be learned, and where it was read."""

    turns: tuple[Turn, ...]
    source: str  # "file:line"

    def __post_init__(self) -> None:
        if not self.turns or self.turns[-1].role != "assistant":
            raise DataError("the last turn is not the assistant's")
        if next(turn.role for turn in self.turns if turn.role != "system") != "user":
            raise DataError("the assistant speaks before the user")
        if not re.fullmatch(r".+:[1-9][0-9]*", self.source, re.DOTALL):
            raise DataError(f"the source {self.source!r} is not file:line")

    def alone(self) -> "Example":
        """Its last question and answer, without what was said before them."""
        system = [turn for turn in self.turns if turn.role == "system"]
        asked = max(at for at, turn in enumerate(self.turns) if turn.role == "user")
        later = (turn for turn in self.turns[asked:] if turn.role != "system")
        return replace(self, turns=(*system, *later))


@dataclass(frozen=True, slots=True)
class Scan:
    """What a file of data holds: the rows that are good, and what is wrong with the others."""

    examples: list[Example]
    bad: list[str]  # "line 3: why"


def scan_examples(path: Path) -> Scan:
    """Every row of a file, in order, and every line that is none.

    Raises:
        DataError: the file cannot be read at all.
    """
    kind = path.suffix.lower()
    if kind not in _READERS:
        raise DataError(
            f"{path} is no kind of data file known here.",
            why="the ending of its name says the format",
            fix=f"end its name in one of {', '.join(_READERS)}",
        )
    scan = Scan([], [])
    for line, read in _READERS[kind](_text(path)):
        try:
            turns = tuple(Turn(role, content) for role, content in read())
            scan.examples.append(Example(turns, f"{path}:{line}"))
        except DataError as error:
            scan.bad.append(f"line {line}: {error.problem}")
    return scan


def read_examples(path: Path) -> list[Example]:
    """Every row of a file, in order.

    Raises:
        DataError: the file cannot be read, has no row, or has rows that are wrong; all of
            them are counted and the first ten are named.
    """
    scan = scan_examples(path)
    count = len(scan.examples) + len(scan.bad)
    if scan.bad:
        raise DataError(
            f"{path}: {len(scan.bad)} of its {count} lines of data are wrong:{listing(scan.bad)}",
            fix="mend these lines, or take them out",
        )
    if not scan.examples:
        raise DataError(f"{path} has no rows.", fix="give each row a line of its own")
    return scan.examples


def listing(problems: list[str]) -> str:
    """The first problems, one on a line, and how many more there are."""
    more = [f"and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
    return "".join(f"\n  {each}" for each in problems[:SHOWN] + more)


def _text(path: Path) -> str:
    try:
        if path.exists() and not path.is_file():
            raise DataError(f"{path} is not a file.", fix="name the files of data one by one")
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"{path} could not be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path} is not UTF-8 text.",
            why=f"line {line} has the byte 0x{error.object[error.start]:02x}, which cannot be",
            fix="save the file as UTF-8",
        ) from error
    if not text.strip():
        raise DataError(f"{path} is empty.")
    return text
