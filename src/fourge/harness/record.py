"""What an experiment has made so far, read from its events and from nothing else.

Five kinds of event say it all; the others are for people.

    artifact   something was written: name, path, parent, purpose, digest
    verdict    what was found about an artifact: the look or the full gates
    moved      where it is from now on, and why; written before the move, which a killed
               experiment therefore finishes when it goes on
    trained    an attempt's training rests: at which step, why, and whether that was the last
    went on    it goes on, because nothing made of it at that step passed

The last event of a name counts. Nothing is ever taken from the file, so neither is history.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fourge import __version__
from fourge.core.content import NOTE
from fourge.core.errors import FormatError, OutputError
from fourge.core.files import write_errors


@dataclass(frozen=True, slots=True)
class Artifact:
    """Something that was made. ``weights`` is what the digest is of, below ``path``."""

    name: str
    path: str
    parent: str  # the name of another, or nothing
    purpose: str  # "start", "data", "base", "attempt" or "candidate"
    digest: str
    weights: str = ""
    passed: bool | None = None  # None: never judged
    reason: str = ""  # against it


@dataclass(frozen=True, slots=True)
class Found:
    """A verdict on an artifact: ``numbers`` has base, tuned and decision of each gate."""

    passed: bool
    reason: str
    numbers: dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class Rest:
    """Where an attempt's training rests; ``against`` is what speaks against a scan."""

    step: int
    against: str
    whole: bool  # no step is left


@dataclass(frozen=True, slots=True)
class Move:
    """An artifact that goes elsewhere; ``note`` stays with it, if there is one."""

    name: str
    source: Path
    target: Path
    note: str


@dataclass(frozen=True, slots=True)
class Record:
    """The state of an experiment."""

    artifacts: dict[str, Artifact]
    found: dict[tuple[str, str], Found]  # by artifact, and "look" or "gates"
    moves: tuple[Move, ...]
    rests: dict[str, Rest]  # attempts that are not being trained
    scanned: dict[str, int]  # the last step at which nothing made of an attempt passed

    @property
    def aside(self) -> set[str]:
        """The names of what was put into the trash."""
        return {move.name for move in self.moves if move.note}


def read_record(events: Iterable[dict[str, Any]]) -> Record:
    """Fold events into the state they lead to.

    Raises:
        FormatError: an event is not as this version writes it.
    """
    record = Record({}, {}, (), {}, {})
    for event in events:
        try:
            record = _after(record, event)
        except (KeyError, TypeError) as error:
            raise FormatError(
                f"An event of kind {event.get('kind')!r} cannot be read.",
                why=f"it is not as fourge {__version__} writes it: {error}",
                fix="read it with the version that wrote it",
            ) from error
    return record


def _after(record: Record, event: dict[str, Any]) -> Record:
    match event["kind"]:
        case "artifact":
            fields = {name: event[name] for name in Artifact.__slots__ if name in event}
            record.artifacts[event["name"]] = Artifact(**fields)
        case "verdict":
            _take_verdict(record, event)
        case "moved":
            return _with_move(record, event)
        case "trained":
            rest = Rest(event["step"], event["reason"], event["whole"])
            record.rests[event["name"]] = rest
        case "went on":
            record.scanned[event["name"]] = record.rests.pop(event["name"]).step
    return record


def _take_verdict(record: Record, event: dict[str, Any]) -> None:
    found = Found(event["passed"], event["reason"], event["numbers"])
    record.found[event["name"], event["of"]] = found
    if event["name"] in record.artifacts:
        _judge(record, event["name"], found.passed, found.reason)


def _with_move(record: Record, event: dict[str, Any]) -> Record:
    name, target = event["name"], event["target"]
    if name in record.artifacts:
        record.artifacts[name] = replace(record.artifacts[name], path=target)
        if event["note"]:
            _judge(record, name, False, event["reason"])
    move = Move(name, Path(event["source"]), Path(target), event["note"])
    return replace(record, moves=(*record.moves, move))


def _judge(record: Record, name: str, passed: bool, reason: str) -> None:
    record.artifacts[name] = replace(record.artifacts[name], passed=passed, reason=reason)


def free_name(folder: Path, name: str) -> Path:
    """The first of ``name-1``, ``name-2``, ... that nothing has."""
    number = 1
    while (folder / f"{name}-{number}").exists():
        number += 1
    return folder / f"{name}-{number}"


def carry_out(move: Move) -> None:
    """Move what the record says has moved, unless that is done already.

    Raises:
        OutputError: something else is in the way.
    """
    if not move.source.exists():
        return
    if move.target.exists():
        raise OutputError(
            f"{move.target} exists.",
            why=f"{move.source} is to be moved there, and nothing is ever written over",
            fix=f"move {move.target} away yourself, and start again",
        )
    with write_errors(move.target):
        if move.note:
            (move.source / NOTE).write_text(move.note, encoding="utf-8")
        move.target.parent.mkdir(parents=True, exist_ok=True)
        move.source.rename(move.target)
