"""How a run ended, in one line."""

from pathlib import Path
from typing import Any

import pytest

from fourge.report.record import read_records
from fourge.report.status import Status, status
from tests.report.example import event, started, write_lines

STEP = event("step", 1.0, step=3, loss=2.0)


def told(folder: Path, *events: dict[str, Any]) -> Status:
    write_lines(folder / "events.jsonl", events)
    return status(read_records(folder)[0])


def gate(name: str, decision: str) -> dict[str, Any]:
    return {"name": name, "decision": decision}


@pytest.mark.parametrize(
    ("events", "word", "text"),
    [
        ([event("artifact")], "open", "Nothing was trained."),
        ([started(9), STEP], "open", "3 of 9 steps: going on"),
        ([started(9), STEP, event("finished", 2.0, stopped=15)], "stopped", "SIGTERM after 3 of 9"),
        ([started(9), event("finished", 2.0, stopped=99)], "stopped", "signal 99 after 0 of 9"),
        ([started(3), STEP, event("finished", 2.0, stopped=0)], "trained", "loss 2.000 at first"),
        ([started(9), STEP, event("failed", 2.0, message="壞了")], "failed", "Failed: 壞了"),
        ([event("failed", 0.5, message="x"), started(9, at=1.0), STEP,
          event("finished", 2.0, stopped=0)], "trained", "Trained 3 of 9"),
        ([event("finished", 0.5, stopped=2), started(9, at=1.0), STEP], "open", "going on"),
    ],
)  # fmt: skip
def test_training_ends_in_one_of_these_ways(
    tmp_path: Path, events: list[dict[str, Any]], word: str, text: str
) -> None:
    found = told(tmp_path, *events)
    assert found.word == word
    assert text in found.text


@pytest.mark.parametrize(
    ("decisions", "word", "text"),
    [
        (["pass", "pass"], "passed", "2 of 2 gates passed"),
        (["pass", "fail", "undecided"], "failed", "1 of 3 gates passed; failed: g1"),
        (["pass", "undecided"], "undecided", "undecided: g1"),
        (["pass", "strange"], "undecided", "1 of 2"),
    ],
)
def test_gates_come_before_the_end_of_training(
    tmp_path: Path, decisions: list[str], word: str, text: str
) -> None:
    gates = [gate(f"g{at}", decision) for at, decision in enumerate(decisions)]
    end = event("finished", 2.0, stopped=0)
    found = told(tmp_path, started(3), STEP, end, event("verdict", 3.0, gates=gates))
    assert found.word == word
    assert text in found.text


@pytest.mark.parametrize(
    ("ended", "word", "text"),
    [
        ([], "open", "Attempt 2: going on"),
        ([event("ended", 9.0, passed=True, stopped=0)], "passed", "Attempt 2 passed"),
        ([event("ended", 9.0, passed=False, stopped=0)], "failed", "None of 2 attempts"),
        ([event("ended", 9.0, passed=False, stopped=2)], "stopped", "SIGINT in attempt 2"),
        ([event("ended", 9.0, passed=False, stopped=2), event("begun", 10.0)], "open", "going on"),
    ],
)
def test_an_experiment_ends_in_one_of_these_ways(
    tmp_path: Path, ended: list[dict[str, Any]], word: str, text: str
) -> None:
    attempts = [event("attempt", 1.0, name=name) for name in ("01", "02", "02")]
    found = told(tmp_path, event("begun"), *attempts, *ended)
    assert found.word == word
    assert text in found.text


def test_a_run_that_was_ended_says_why(tmp_path: Path) -> None:
    end = event("finished", 2.0, stopped=0, reason="a look passed")
    assert told(tmp_path, started(9), STEP, end).text == "Ended after 3 of 9 steps: a look passed"


def test_a_verdict_that_is_none_is_passed_over(tmp_path: Path) -> None:
    assert told(tmp_path, started(3), event("verdict", gates="?")).word == "open"
