"""The tables of a run: what it was told, on what, with what, and what happened to it."""

import json
import math
import shlex
import time
from collections.abc import Iterator, Sequence
from typing import Any

from fourge.report.curves import guard_acts
from fourge.report.markup import Markup, details, table, tag
from fourge.report.record import Event, Record, number

Row = tuple[str, str]


def data(record: Record) -> Markup:
    """The mix as the run file has it, and the rows as they were counted."""
    settings = record.settings().get("data")
    mix = settings.get("mix") if isinstance(settings, dict) else None
    counted = record.last("started").get("rows")
    rows = counted if isinstance(counted, list) else []
    files = [each for each in mix if isinstance(each, dict)] if isinstance(mix, list) else []
    if not rows and not files:
        return Markup("")
    total = sum(number(count, 0) for count in rows)
    lines = []
    for at in range(max(len(rows), len(files))):
        file = files[at] if at < len(files) else {}
        count = number(rows[at]) if at < len(rows) else math.nan
        known = math.isfinite(count)
        lines.append((str(file.get("path", f"file {at + 1}")), _text(file.get("weight")),
                      _text(file.get("learn")), f"{count:,.0f}" if known else "",
                      f"{count / total:.1%}" if known and total else ""))  # fmt: skip
    head = "file", "weight", "learn", "rows as counted", "share"
    return table(head, lines, "Data")


def settings(record: Record, name: str) -> Markup:
    """run.yaml, as it was resolved."""
    rows = list(flat(record.settings()))
    if not rows:
        return Markup("")
    return details(f"{name}-settings", f"{len(rows)} settings",
                   table(("setting", "value"), rows, "Settings"))  # fmt: skip


def flat(tree: Any, at: str = "") -> Iterator[Row]:
    """``optim.lr``, ``1e-05``: the leaves of a tree of settings."""
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from flat(value, f"{at}.{key}" if at else str(key))
    elif isinstance(tree, list) and any(isinstance(each, dict | list) for each in tree):
        for index, value in enumerate(tree):
            yield from flat(value, f"{at}.{index}")
    elif at:
        yield at, _text(tree)


def origin(record: Record) -> Markup:
    """The exact commands, versions and machine, as far as they were recorded."""
    started = record.last("started")
    guard = next((event for event in reversed(record.guard) if event.get("kind") == "start"), {})
    rows = [*_commands(record, guard), *_started(record.last("begun")), *_started(started)]
    rows += [(f"guard: {key}", _text(guard[key])) for key in ("python", "kernel") if key in guard]
    return table(("what", "value"), rows, "Commands, versions, machine") if rows else Markup("")


def _commands(record: Record, guard: Event) -> Iterator[Row]:
    for event in (*record.of("begun"), *record.of("started")):
        if isinstance(event.get("command"), list):
            yield "command", shlex.join(map(str, event["command"]))
            if event.get("folder"):
                yield "in folder", _text(event["folder"])
    if not any(event.get("command") for event in record.events) and isinstance(
        guard.get("command"), list
    ):
        yield "command", shlex.join(map(str, guard["command"]))


def _started(event: Event) -> Iterator[Row]:
    for key in ("run", "device", "compute_dtype", "trained", "tensors", "version", "code"):
        if key in event:
            value = event[key]
            yield _NAMES.get(key, key), f"{value:,}" if isinstance(value, int) else _text(value)
    yield from flat({key: event[key] for key in ("versions", "machine") if key in event})
    for key in ("base", "data", "config"):
        if key in event:
            yield f"digest of {_NAMES.get(key, key)}", _text(event[key])


_NAMES = {
    "compute_dtype": "computing in", "trained": "parameters", "version": "fourge",
    "code": "digest of the code",
    "base": "the base model", "data": "the data", "config": "the settings",
}  # fmt: skip


def happenings(record: Record, name: str) -> Markup:
    """Beginnings, ends, failures and what the guard did, by the clock."""
    events = [event for event in record.events if event.get("kind") in _TOLD]
    saved = record.of("saved")
    told = [*events, *({**act, "kind": f"guard: {act.get('kind')}"} for act in guard_acts(record))]
    told.sort(key=lambda event: number(event.get("t"), 0))
    rows = [(clock(event.get("t")), str(event["kind"]), _what(event)) for event in told]
    parts = [table(("when", "what", "how"), rows, "What happened")] if rows else []
    if record.steps.repeated:
        parts.append(tag("p", f"{record.steps.repeated:,} steps were done again after a stop; "
                         "the later ones are shown."))  # fmt: skip
    if saved:
        lines = [(clock(event.get("t")), _text(event.get("step")), _text(event.get("path")),
                  f"{number(event.get('seconds'), 0):.1f}") for event in saved[-200:]]  # fmt: skip
        head = "when", "step", "path", "seconds"
        parts.append(details(f"{name}-saved", f"{len(saved)} checkpoints",
                             table(head, lines, "Checkpoints")))  # fmt: skip
    return tag("div", *parts)


_TOLD = ("begun", "planned", "started", "finished", "failed", "attempt", "look", "trained",
         "went on", "moved", "verdict", "ended")  # fmt: skip
_SHOWN = ("name", "of", "first", "steps", "step", "stopped", "passed", "reason", "export", "error",
          "message", "peak", "headroom", "signal", "target")  # fmt: skip


def _what(event: Event) -> str:
    found = [f"{key} {_text(event[key])}" for key in _SHOWN if event.get(key) not in (None, "")]
    if isinstance(event.get("settings"), list):  # of an attempt: what it changes
        found += map(str, event["settings"])
    return ", ".join(found)


def clock(at: Any) -> str:
    """Wall-clock time, in UTC: a page is read elsewhere than it was made."""
    seconds = number(at)
    if not 0 <= seconds < 1e11:
        return ""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def compared(records: Sequence[Record]) -> Markup:
    """The settings in which runs differ."""
    trees = [dict(flat(record.settings())) for record in records]
    keys = list(dict.fromkeys(key for tree in trees for key in tree))
    rows = [
        (key, *(tree.get(key, "") for tree in trees))
        for key in keys
        if len({tree.get(key) for tree in trees}) > 1
    ]
    head = "setting", *(record.name for record in records)
    return table(head, rows, "Settings that differ") if rows else tag("p", "No setting differs.")
