"""How a run ended, in one line: the first thing on its page."""

import signal
from dataclasses import dataclass
from typing import Any, Literal

from fourge.report.record import Record, number

Word = Literal["passed", "failed", "undecided", "trained", "stopped", "open"]


@dataclass(frozen=True, slots=True)
class Status:
    """``word`` chooses the colour; ``text`` says it to the reader."""

    word: Word
    text: str


def status(record: Record) -> Status:
    """Of gates if there were any, else of the training."""
    failed, finished = record.last("failed"), record.last("finished")
    gates = gates_of(record.last("verdict"))
    if record.of("begun"):
        return _experiment(record)
    if number(failed.get("t"), 0) > number(finished.get("t"), 0):
        return Status("failed", f"Failed: {failed.get('message') or failed.get('error')}")
    if gates:
        return _judged(gates)
    if not record.of("started"):
        return Status("open", "Nothing was trained.")
    return _trained(record)


def gates_of(verdict: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a verdict: ``gates``, or ``numbers`` with base, tuned and decision of each."""
    gates, short = verdict.get("gates"), verdict.get("numbers")
    if isinstance(gates, list):
        return [gate for gate in gates if isinstance(gate, dict)]
    if not isinstance(short, dict):
        return []
    keys = "name", "base", "tuned", "decision"
    return [
        dict(zip(keys, (name, *values), strict=False))
        for name, values in short.items()
        if isinstance(values, list)
    ]


def _experiment(record: Record) -> Status:
    """The last word of several attempts."""
    begun, ended = record.last("begun"), record.last("ended")
    tried = len({str(event.get("name")) for event in record.of("attempt")})
    if number(ended.get("t"), 0) < number(begun.get("t"), 0):
        return Status("open", f"Attempt {tried}: going on, or ended without a word")
    if stopped := int(number(ended.get("stopped"), 0)):
        return Status("stopped", f"Stopped by {_signal(stopped)} in attempt {tried}")
    if ended.get("passed") is True:
        return Status("passed", f"Attempt {tried} passed its gates")
    return Status("failed", f"None of {tried} attempts passed")


def _judged(gates: list[dict[str, Any]]) -> Status:
    names = {
        decision: [str(gate.get("name")) for gate in gates if gate.get("decision") == decision]
        for decision in ("pass", "fail", "undecided")
    }
    passed = f"{len(names['pass'])} of {len(gates)} gates passed"
    if names["fail"]:
        return Status("failed", f"{passed}; failed: {', '.join(names['fail'])}")
    if len(names["pass"]) < len(gates):
        return Status("undecided", f"{passed}; undecided: {', '.join(names['undecided'])}")
    return Status("passed", passed)


def _trained(record: Record) -> Status:
    started, finished = record.last("started"), record.last("finished")
    of = f"{_count(record)} of {started.get('steps', '?')} steps"
    if number(finished.get("t"), 0) < number(started.get("t"), 0):
        return Status("open", f"{of}: going on, or ended without a word")
    if stopped := int(number(finished.get("stopped"), 0)):
        return Status("stopped", f"Stopped by {_signal(stopped)} after {of}; --resume goes on")
    if reason := finished.get("reason"):
        return Status("trained", f"Ended after {of}: {reason}")
    return Status("trained", f"Trained {of}{_fell(record)}")


def _count(record: Record) -> str:
    return f"{record.steps['step'][-1]:.0f}" if len(record.steps) else "0"


def _fell(record: Record) -> str:
    losses = record.steps.points("step", "loss")[1]
    return f"; loss {losses[0]:.3f} at first, {losses[-1]:.3f} at last" if losses else ""


def _signal(value: int) -> str:
    names = {int(each): each.name for each in signal.Signals}
    return names.get(value, f"signal {value}")
