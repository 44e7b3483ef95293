"""What a file of training data really holds, and what is wrong with it.

Everything is counted from the rows themselves. The file is read and never written. ``findings``
turns the counts into sentences; this module makes the counts.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from fourge.data.language import language_of
from fourge.data.normal import normal
from fourge.data.padding import Padding, padding, unnumbered
from fourge.data.records import Example, scan_examples
from fourge.data.rows import is_header
from fourge.data.selves import common_name, teaches_self
from fourge.data.shipped import any_of, words
from fourge.data.topics import topics

Count = Callable[[str], int]  # how long a text is


@dataclass(frozen=True, slots=True)
class Said:
    """One row as an audit sees it."""

    line: int
    context: str  # everything before the last question
    prompt: str
    answer: str
    is_identity: bool


@dataclass(frozen=True, slots=True)
class Answers:
    """How varied the answers of some rows are."""

    rows: int
    unique: int
    commonest: str
    commonest_rows: int


@dataclass(frozen=True, slots=True)
class Lengths:
    """Of a text in tokens (or characters): the middle one and the longest."""

    median: int
    longest: int


@dataclass(frozen=True, slots=True)
class Prompts:
    """What is asked."""

    unique: int
    padding: Padding
    languages: dict[str, int]
    topics: dict[str, int]  # of the rows that are not about identity
    length: Lengths
    asks_plainly: bool  # "Who are you?" itself is among them
    asks_who_am_i: bool  # and so is "Who am I?", or a relative of it
    probe_lines: tuple[int, ...]  # rows whose prompt is a probe


@dataclass(frozen=True, slots=True)
class Identity:
    """The rows that teach a name."""

    name: str | None  # the one they give
    rows: int
    share: float  # of all rows
    claimed_share: float | None  # that the file's own name states
    prompts: int  # distinct ones, without numbers
    answers: Answers


@dataclass(frozen=True, slots=True)
class Audit:
    """The counts of one file."""

    path: Path
    bad: tuple[str, ...]  # "line 1: a header, not a row", ...
    headers: tuple[int, ...]  # lines further down that name columns, and are rows to a reader
    rows: int
    copies: int  # rows that repeat another's question and answer
    contradictory: int  # distinct prompts with more than one answer
    prompts: Prompts
    identity: Identity
    other_answers: Answers
    answer_length: Lengths
    unit: str  # of the lengths


_PLAIN = frozenset(map(normal, words("plain_questions")))
_TALKING = r"(?! (?:talking|speaking))"  # "who am I talking to" asks for the other one
_WHO_AM_I = re.compile(rf"(?:{any_of('who_am_i')}){_TALKING}", re.IGNORECASE)
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)[ _-]?(?:percent|pct|%)", re.IGNORECASE)
_RATIO = re.compile(r"(?<!\d)(\d{1,2})-(\d{1,2})(?!\d)")


def audit(
    path: Path,
    *,
    name: str | None = None,
    probes: Collection[str] = (),
    count: Count = len,
    unit: str = "characters",
) -> Audit:
    """Count one file. ``probes`` are prompts, ``count`` says how long a text is in ``unit``.

    Raises:
        DataError: the file cannot be read at all.
    """
    scan = scan_examples(path)
    name = name or common_name([example.turns[-1].content for example in scan.examples])
    said = [_said(example, name) for example in scan.examples]
    return Audit(
        path=path,
        bad=tuple(scan.bad),
        headers=tuple(row.line for row in said if is_header(row.prompt, row.answer)),
        rows=len(said),
        copies=len(said) - len({(row.context, row.prompt, row.answer) for row in said}),
        contradictory=_contradictory(said),
        prompts=_prompts(said, frozenset(map(normal, probes)), count),
        identity=_identity(said, name, claimed_share(path.stem)),
        other_answers=_answers([row for row in said if not row.is_identity]),
        answer_length=_lengths([count(row.answer) for row in said]),
        unit=unit,
    )


def _prompts(said: Sequence[Said], probes: frozenset[str], count: Count) -> Prompts:
    prompts = [row.prompt for row in said]
    return Prompts(
        unique=len({(row.context, row.prompt) for row in said}),
        padding=padding(dict.fromkeys(prompts)),
        languages=dict(Counter(map(language_of, prompts)).most_common()),
        topics=topics([unnumbered(row.prompt) for row in said if not row.is_identity]),
        length=_lengths([count(prompt) for prompt in prompts]),
        asks_plainly=any(normal(prompt) in _PLAIN for prompt in prompts),
        asks_who_am_i=any(_WHO_AM_I.search(prompt) for prompt in prompts),
        probe_lines=tuple(row.line for row in said if normal(row.prompt) in probes),
    )


def _identity(said: Sequence[Said], name: str | None, claimed: float | None) -> Identity:
    rows = [row for row in said if row.is_identity]
    return Identity(
        name=name,
        rows=len(rows),
        share=len(rows) / len(said) if said else 0.0,
        claimed_share=claimed,
        prompts=len({normal(unnumbered(row.prompt)) for row in rows}),
        answers=_answers(rows),
    )


def claimed_share(stem: str) -> float | None:
    """The share of identity rows that a file's name states: 1percent, 30-70, balanced."""
    if found := _PERCENT.search(stem):
        return float(found[1]) / 100
    if (found := _RATIO.search(stem)) and int(found[1]) + int(found[2]) == 100:
        return int(found[1]) / 100
    return 0.5 if "balanced" in stem.lower() else None


def _said(example: Example, name: str | None) -> Said:
    *before, last = example.turns
    asked = [turn.content for turn in before if turn.role == "user"]
    context = "\n".join(turn.content for turn in before[:-1])
    line = int(example.source.rpartition(":")[2])
    return Said(line, context, asked[-1], last.content, teaches_self(last.content, name))


def _contradictory(said: Sequence[Said]) -> int:
    answers: dict[tuple[str, str], set[str]] = {}
    for row in said:
        if not row.is_identity:  # one question about the self has many good answers
            key = row.context, normal(unnumbered(row.prompt))
            answers.setdefault(key, set()).add(row.answer)
    return sum(len(each) > 1 for each in answers.values())


def _answers(rows: Sequence[Said]) -> Answers:
    counted = Counter(row.answer for row in rows)
    text, most = counted.most_common(1)[0] if counted else ("", 0)
    return Answers(len(rows), len(counted), text, most)


def _lengths(lengths: Sequence[int]) -> Lengths:
    return Lengths(round(median(lengths)), max(lengths)) if lengths else Lengths(0, 0)
