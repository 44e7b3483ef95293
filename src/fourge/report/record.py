"""What a run's files say, taken in as they grow.

Read are ``events.jsonl`` (see ``core/events.py``), ``guard.jsonl`` beside it, and ``run.yaml`` for
its settings. Nothing is written, and no field has to be there: a record may come from a newer or
an older fourge, or end in the middle. The kinds, and the fields that the page reads:

    started   run, steps, first, rows, trained, tensors, device, compute_dtype, version, versions,
              command, folder, machine, base, data, config
    step      step, loss, target_loss, kl, kl_weight, lr, grad_norm, moved, codes_changed,
              tokens_per_s, peak {phase: bytes}
    saved     step, path, seconds
    finished  step, stopped (a signal's number or 0), reason, export
    failed    error, message
    planned   peak, limit (bytes)
    verdict   name, of, reason, gates: [{name, items, base, tuned, needed, decision, note}]
              or numbers: {name: [base, tuned, decision]};
              failures: [{gate, language, prompt, answer, why}]
    answers   name, rows: [{prompt, base, tuned}]
    artifact  name, purpose, path, parent or parents, digest, nbytes, reason; the last of a name

and of an experiment: begun (command, version, code), attempt (name, settings), look, trained,
went on, moved, ended (passed, stopped), listed with their names, steps and reasons.

A guard writes ``start`` (limits, command, python, kernel), ``sample`` (left_mib, headroom_mib),
``minute`` (passed over: samples again), ``end``, and one event each time it acts.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from fourge.core.errors import FormatError
from fourge.core.events import FILE, RUN_FILE, parsed
from fourge.guard.record import FILE as GUARD_FILE
from fourge.report.columns import Columns

Event = dict[str, Any]
_EXPERIMENT_FILE = "experiment.yaml"
PEAK = "peak."  # before a phase's name, as a column


class Tail:
    """The events of a file that may still grow, each once."""

    def __init__(self, path: Path) -> None:
        self.path, self._offset = path, 0

    def new(self) -> Iterator[Event]:
        """What was appended since; a line without its end is left for the next time."""
        if not self.path.is_file():
            return
        with self.path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                if (event := parsed(line.decode("utf-8", "replace"))) is not None:
                    yield event


class Record:
    """One run, as far as it was written; ``read`` takes in more."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, folder.resolve().name
        self.steps, self.samples = Columns("step"), Columns("t")
        self.events: list[Event] = []  # all kinds but step
        self.guard: list[Event] = []  # all kinds but sample
        self.taken = 0  # events, of both files
        self.last_at = 0.0
        self._tails = Tail(folder / FILE), Tail(folder / GUARD_FILE)

    def read(self) -> None:
        """Take in what was written since."""
        for event in self._tails[0].new():
            self.taken += 1
            self.last_at = number(event.get("t"), self.last_at)
            self._take(event)
        for event in self._tails[1].new():
            self.taken += 1
            self._take_guard(event)

    def _take(self, event: Event) -> None:
        if event.get("kind") != "step":
            self.events.append(event)
        elif not math.isnan(number(event.get("step"))):
            self.steps.add(numbers(event))

    def _take_guard(self, event: Event) -> None:
        if event.get("kind") == "sample" and not math.isnan(number(event.get("t"))):
            self.samples.add(numbers(event))
        elif event.get("kind") != "minute":
            self.guard.append(event)

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.get("kind") == kind]

    def last(self, kind: str) -> Event:
        """The latest event of a kind; an empty one if there is none."""
        return (self.of(kind) or [{}])[-1]

    @property
    def began_at(self) -> float:
        """Wall-clock seconds; minutes on the page count from here."""
        times = [number(event.get("t")) for event in (*self.events[:1], *self.guard[:1])]
        times += [self.samples["t"][0]] if len(self.samples) else []
        times += [self.steps["t"][0]] if len(self.steps) else []
        return min((at for at in times if math.isfinite(at)), default=0.0)

    def settings(self) -> dict[str, Any]:
        """What run.yaml or experiment.yaml says; empty if it is gone or torn."""
        files = [self.folder / name for name in (RUN_FILE, _EXPERIMENT_FILE)]
        path = next((file for file in files if file.is_file()), None)
        try:
            tree = yaml.safe_load(path.read_text(encoding="utf-8")) if path else {}
        except (OSError, ValueError, yaml.YAMLError):
            return {}
        return tree if isinstance(tree, dict) else {}


def number(value: Any, otherwise: float = math.nan) -> float:
    """A finite number, or ``otherwise``: a record is not always what it should be."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return otherwise
    return float(value) if math.isfinite(value) else otherwise


def numbers(event: Mapping[str, Any]) -> dict[str, float]:
    """Every number of an event; those of ``peak`` under names of their own."""
    peak = event.get("peak")
    phases = peak if isinstance(peak, dict) else {}
    flat = {**event, **{PEAK + str(phase): nbytes for phase, nbytes in phases.items()}}
    return {name: value for name in flat if not math.isnan(value := number(flat[name]))}


def read_records(folder: Path, known: dict[Path, Record] | None = None) -> list[Record]:
    """A run, or an experiment: its own record, and those of the runs in folders below it.

    Records that are ``known`` only take in what is new; new ones are put there.

    Raises:
        FormatError: there is no record.
    """
    files = [folder / FILE, *sorted(folder.glob(f"*/{FILE}")), *sorted(folder.glob(f"*/*/{FILE}"))]
    known = {} if known is None else known
    here = [file.parent for file in files if file.is_file()]
    records = [known.setdefault(each, known.get(each) or Record(each)) for each in here]
    if not records:
        raise FormatError(
            f"{folder} has no record of a run.",
            why=f"there is no {FILE} in it or in the folders below",
            fix="give the folder that a run file names as out",
        )
    for record in records:
        record.read()
    return sorted(records, key=lambda record: (record.folder != folder, record.began_at))
