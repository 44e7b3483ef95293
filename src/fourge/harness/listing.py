"""Runs and experiments on disk, as their records tell: list, compare, and trace a weight file.

Everything is read from ``events.jsonl`` and the settings beside it, and nothing heavy is loaded.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fourge.config.experiment import Experiment
from fourge.config.run import Run, difference
from fourge.core.content import digest_of_path
from fourge.core.errors import ConfigError, FormatError
from fourge.core.events import EXPORT, FILE, read_events
from fourge.harness.record import Artifact, Record, read_record

Kind = Literal["run", "experiment"]
State = Literal["as recorded", "changed", "gone", "not here"]


@dataclass(frozen=True, slots=True)
class Summary:
    """One run or experiment, in short."""

    path: Path
    kind: Kind
    began: float  # seconds since 1970
    state: str
    settings: str  # their digest
    code: str  # its version, and for an experiment its digest
    step: int
    loss: float | None
    kl: float | None


@dataclass(frozen=True, slots=True)
class Link:
    """One thing on the way from a weight file to the base."""

    name: str
    purpose: str
    path: str
    digest: str
    state: State


def find(folder: Path) -> list[Summary]:
    """All runs and experiments under a folder, the first begun first.

    Raises:
        FormatError: there is no such folder.
    """
    if not folder.is_dir():
        raise FormatError(f"{folder} is not a folder.", fix="give one that runs were written to")
    paths = [path.parent for path in folder.rglob(FILE)]
    found = [summary_of(path) for path in paths if any(True for _ in read_events(path / FILE))]
    return sorted(found, key=lambda summary: summary.began)


def summary_of(path: Path) -> Summary:
    """What the record of a run or experiment comes to.

    Raises:
        FormatError: there is none.
    """
    events = list(read_events(path / FILE))
    if not events:
        raise FormatError(f"{path / FILE} is empty.", fix="give the folder of a run")
    kind: Kind = "experiment" if any(e["kind"] == "begun" for e in events) else "run"
    first = next((e for e in events if e["kind"] in ("begun", "started")), events[0])
    last: dict[str, Any] = next((e for e in reversed(events) if e["kind"] == "step"), {})
    code = " ".join(str(first[name]) for name in ("version", "code") if name in first)
    return Summary(
        path, kind, events[0]["t"], _state(events), str(first.get("config", "")), code,
        last.get("step", 0), last.get("loss"), last.get("kl"),
    )  # fmt: skip


def _state(events: list[dict[str, Any]]) -> str:
    ends = ("begun", "started", "finished", "failed", "ended")
    last = next((event for event in reversed(events) if event["kind"] in ends), {"kind": ""})
    match last["kind"]:
        case "finished" | "ended" if last["stopped"]:
            return "stopped"
        case "finished":
            return f"ended: {last['reason']}" if last.get("reason") else "finished"
        case "ended":
            return "passed" if last["passed"] else "no attempt passed"
        case "failed":
            return f"failed: {last['error']}"
    return "unfinished"


def settings_of(path: Path) -> Run | Experiment:
    """The settings that a run or experiment was begun with.

    Raises:
        FormatError: they are not there.
    """
    for name, kind in (("run.yaml", Run), ("experiment.yaml", Experiment)):
        if (path / name).is_file():
            return kind.from_yaml((path / name).read_text(encoding="utf-8"))
    raise FormatError(f"{path} has neither run.yaml nor experiment.yaml.")


def compare(one: Path, other: Path) -> list[str]:
    """What differs between two runs, or two experiments: settings, then results.

    Raises:
        ConfigError: one is a run and the other an experiment.
    """
    mine, theirs = settings_of(one), settings_of(other)
    if type(mine) is not type(theirs):
        raise ConfigError("A run and an experiment cannot be compared.", fix="give two of a kind")
    lines = difference(mine, theirs)
    before, after = summary_of(one), summary_of(other)
    for name in ("code", "state", "step", "loss", "kl"):
        values = getattr(before, name), getattr(after, name)
        if values[0] != values[1]:
            lines.append(f"{name}: {values[0]} -> {values[1]}")
    return lines


def trace(path: Path) -> list[Link]:
    """From a weight file, or the folder it is in, back to the base.

    Raises:
        FormatError: no record above it knows it.
    """
    if not path.exists():
        raise FormatError(f"{path} does not exist.")
    path = path.resolve()
    for folder in (path, *path.parents):
        if not (folder / FILE).is_file():
            continue
        if links := list(_in_experiment(path, folder)) or list(_in_run(path, folder)):
            return links
    raise FormatError(
        f"No record knows {path}.", fix="give a file or folder that a run or experiment wrote"
    )


def _in_experiment(path: Path, folder: Path) -> Iterator[Link]:
    record = read_record(read_events(folder / FILE))
    artifact = _holding(record, path)
    while artifact is not None:
        yield _link(artifact)
        if artifact.purpose == "attempt":  # which comes from weights and from data
            yield _link(record.artifacts["data"])
        artifact = record.artifacts.get(artifact.parent)


def _link(artifact: Artifact) -> Link:
    path, digest = artifact.path, artifact.digest
    return Link(artifact.name, artifact.purpose, path, digest, _now(artifact))


def _holding(record: Record, path: Path) -> Artifact | None:
    """The artifact that a path is, or is in."""
    for artifact in record.artifacts.values():
        if path == Path(artifact.path) or Path(artifact.path) in path.parents:
            return artifact
    return None


def _now(artifact: Artifact) -> State:
    if not artifact.parent:  # the start is any model, by its weights and not by its files
        return "not here"
    path = Path(artifact.path) / artifact.weights
    if not path.exists():
        return "gone"
    return "as recorded" if digest_of_path(path) == artifact.digest else "changed"


def _in_run(path: Path, folder: Path) -> Iterator[Link]:
    """A run's export: made by its settings and data, from its base."""
    events = {event["kind"]: event for event in read_events(folder / FILE)}
    started, finished = events.get("started"), events.get("finished", {})
    export = folder / EXPORT
    if started is None or export not in (path, *path.parents):
        return
    model = settings_of(folder).model.path
    recorded, found = finished.get("digest", ""), digest_of_path(export)
    state: State = "not here" if not recorded else "as recorded" if found == recorded else "changed"
    yield Link(EXPORT, "export", str(export), found, state)
    yield Link("data", "data", str(folder), started["data"], "not here")
    yield Link("settings", "settings", str(folder), started["config"], "not here")
    yield Link("start", "start", model, started["base"], "not here")
