"""What every stage of an experiment works with, and what it may tell of itself."""

import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fourge.config.experiment import Experiment
from fourge.core.content import digest_of_path
from fourge.core.errors import ConfigError
from fourge.core.events import EventLog, read_events
from fourge.evaluate.verdict import Gate
from fourge.guard.client import Beat
from fourge.harness.record import Artifact, Move, Record, carry_out, free_name, read_record
from fourge.harness.setup import Progress
from fourge.harness.training import Happened, Stop
from fourge.train.loop import Stopped

START, DATA, BASE, EXPORT, TRASH, CANDIDATES = (
    "start", "data", "base", "export", "trash", "candidates")  # fmt: skip


@dataclass(frozen=True, slots=True)
class StageDone:
    """Something that all attempts share is there; ``again`` if it was there before."""

    stage: str
    path: Path
    again: bool


@dataclass(frozen=True, slots=True)
class AttemptBegun:
    name: str
    of: int
    settings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Looked:
    """A look at the model that is being trained. Beyond hope, ``collapsed`` says why."""

    name: str
    step: int
    passed: bool
    reason: str
    collapsed: str
    numbers: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BaseScored:
    """Where every gate stands before anything is taught."""

    gates: tuple[Gate, ...]


@dataclass(frozen=True, slots=True)
class Judged:
    """An export, by a look at it or by the full gates; without gates it could not be asked."""

    name: str
    of: str  # "look" or "gates"
    passed: bool
    reason: str
    gates: tuple[Gate, ...]


@dataclass(frozen=True, slots=True)
class PutAside:
    name: str
    path: Path
    reason: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The end; ``stopped`` is the signal that it came by, or 0."""

    export: Path | None
    stopped: int = 0

    @property
    def passed(self) -> bool:
        return self.export is not None


Told = StageDone | BaseScored | AttemptBegun | Looked | Judged | PutAside | Ended | Happened


@dataclass(frozen=True, slots=True)
class Work:
    """An experiment under way."""

    plan: Experiment
    log: EventLog
    stop: Stop
    tell: Progress

    @property
    def out(self) -> Path:
        return self.plan.out

    def record(self) -> Record:
        return read_record(read_events(self.log.path))

    def made(self, artifact: Artifact) -> None:
        self.log.write("artifact", **asdict(artifact))

    def kept(self, name: str, path: Path) -> bool:
        """Whether an artifact is recorded and on disk as it was.

        Raises:
            ConfigError: it is there, and is not what it was.
        """
        known = self.record().artifacts.get(name)
        if known is None or not path.exists():
            return False
        if digest_of_path(path) != known.digest:
            raise ConfigError(
                f"{path} is not what this experiment made.",
                why="its digest is another",
                fix="put it back, or begin another experiment with another out",
            )
        return True

    def put_aside(self, name: str, path: Path, reason: str, note: str) -> PutAside:
        """Into the trash, under a name that nothing has, with a note."""
        target = free_name(self.out / TRASH, name)
        self.move(name, path, target, reason=reason, note=note)
        return PutAside(name, target, reason)

    def move(self, name: str, path: Path, target: Path, *, reason: str, note: str = "") -> None:
        """Recorded first: a killed experiment finishes the move when it goes on."""
        self.log.write("moved", name=name, source=str(path), target=str(target), reason=reason,
                       note=note)  # fmt: skip
        carry_out(Move(name, path, target, note))


def telling(stop: Stop, progress: Progress | None) -> Progress:
    """Progress that is a sign of life too, and ends a look that is asked to.

    A guard that is gone ends what runs without it; while a model is trained, training sees to it.
    """
    guard = Beat()

    def tell(what: str, done: int, total: int) -> None:
        guard.beat()
        if stop.running and stop.signal:
            raise Stopped
        if not stop.running:
            guard.warned()
            if guard.lost:
                signal.raise_signal(signal.SIGTERM)
        if progress is not None:
            progress(what, done, total)

    return tell


def note_of(name: str, reason: str, found: Mapping[str, list[Any]]) -> str:
    """Why something is in the trash, with its numbers."""
    lines = [f"# {name}: put aside", "", f"Why: {reason}.", ""]
    if found:
        lines += ["| gate | base | tuned | decision |", "|---|---|---|---|"]
        lines += [f"| {gate} | {' | '.join(map(_cell, row))} |" for gate, row in found.items()]
    return "\n".join(lines).rstrip() + "\n"


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)
