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
class Audit:
    """The counts of one file."""

    path: Path
    bad: tuple[str, ...]  # "line 1: a header, not a row", ...
    headers: tuple[int, ...]  # lines further down that name columns, and are rows to a reader
    rows: int
    unique_prompts: int
    duplicate_rows: int  # the same question and the same answer once more
    contradictory: int  # distinct prompts with more than one answer
    padding: Padding
    name: str | None  # the one that identity rows give
    identity_rows: int
    identity_prompts: int  # distinct ones among them, without numbers
    claimed_share: float | None  # that the file's own name states
    identity_answers: Answers
    other_answers: Answers
    languages: dict[str, int]
    topics: dict[str, int]  # of the rows that are not about identity
    prompt_length: Lengths
    answer_length: Lengths
    unit: str  # of the lengths
    asks_plainly: bool  # "Who are you?" itself is among the prompts
    asks_who_am_i: bool  # and so is "Who am I?", or a relative of it
    probe_lines: tuple[int, ...]  # rows whose prompt is a probe

    @property
    def identity_share(self) -> float:
        return self.identity_rows / self.rows if self.rows else 0.0


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
    prompts = [row.prompt for row in said]
    identity = [row for row in said if row.is_identity]
    others = [row for row in said if not row.is_identity]
    known = frozenset(map(normal, probes))
    return Audit(
        path=path,
        bad=tuple(scan.bad),
        headers=tuple(row.line for row in said if is_header(row.prompt, row.answer)),
        rows=len(said),
        unique_prompts=len({(row.context, row.prompt) for row in said}),
        duplicate_rows=len(said) - len({(row.context, row.prompt, row.answer) for row in said}),
        contradictory=_contradictory(said),
        padding=padding(dict.fromkeys(prompts)),
        name=name,
        identity_rows=len(identity),
        identity_prompts=len({normal(unnumbered(row.prompt)) for row in identity}),
        claimed_share=claimed_share(path.stem),
        identity_answers=_answers(identity),
        other_answers=_answers(others),
        languages=dict(Counter(map(language_of, prompts)).most_common()),
        topics=topics([unnumbered(row.prompt) for row in others]),
        prompt_length=_lengths([count(prompt) for prompt in prompts]),
        answer_length=_lengths([count(row.answer) for row in said]),
        unit=unit,
        asks_plainly=any(normal(prompt) in _PLAIN for prompt in prompts),
        asks_who_am_i=any(_WHO_AM_I.search(prompt) for prompt in prompts),
        probe_lines=tuple(row.line for row in said if normal(row.prompt) in known),
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
