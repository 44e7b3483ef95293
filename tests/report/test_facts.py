"""The tables of a run."""

from pathlib import Path
from typing import Any

import pytest

from fourge.report import facts
from fourge.report.record import Record, read_records
from tests.report.example import event, started, write_lines, write_run
from tests.report.test_markup import read


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return read_records(write_run(tmp_path / "a", 6))[0]


def of(folder: Path, *events: dict[str, Any]) -> Record:
    write_lines(folder / "events.jsonl", events)
    return read_records(folder)[0]


def test_data_is_shown_as_it_was_counted(record: Record) -> None:
    text = facts.data(record)
    assert "/data/身份.tsv" in text
    assert "<td>320</td><td>9.1%</td>" in text
    assert "<td>3,200</td><td>90.9%</td>" in text


def test_rows_without_a_run_file_are_counted_too(tmp_path: Path) -> None:
    text = facts.data(of(tmp_path, started(3)))
    assert "file 1" in text
    assert "3,200" in text
    assert facts.data(of(tmp_path, event("verdict"))) == ""


def test_settings_are_flat_and_complete(record: Record) -> None:
    rows = dict(facts.flat(record.settings()))
    assert rows["data.mix.1.path"] == "/data/replay.jsonl"
    assert rows["optim.lr"] == "2e-05"
    assert all(name in facts.settings(record, "r0") for name in rows)
    assert dict(facts.flat({"a": {}, "b": [], "c": [1, 2], "d": None})) == {
        "a": "{}", "b": "[]", "c": "[1, 2]", "d": ""}  # fmt: skip
    assert list(facts.flat({})) == []


def test_commands_versions_and_machine_are_told(record: Record) -> None:
    text = facts.origin(record)
    assert text.count("fourge train run.yaml") == 2, "begun, and gone on"
    for told in (
        "/home/me/工作",
        "134,515,008",
        "2.13.0",
        "versions.torch",
        "machine.cores",
        "ab12",
    ):
        assert told in text


def test_the_command_that_the_guard_saw_is_told_if_nobody_else_did(tmp_path: Path) -> None:
    write_lines(tmp_path / "guard.jsonl", [event("start", command=["run", "a b"], kernel="6.1")])
    text = facts.origin(of(tmp_path, event("verdict")))
    assert "run &#x27;a b&#x27;" in text
    assert "6.1" in text


def test_what_happened_is_in_the_order_of_the_clock(record: Record) -> None:
    text = read(facts.happenings(record, "r0")).text
    order = ["2025-11-15 00:00:00started", "stopped 15", "guard: warned", "first 4", "stopped 0"]
    places = [text.index(each) for each in order]
    assert places == sorted(places)
    assert "1 checkpoints" in text
    assert "done again" not in text


def test_attempts_are_told_with_what_they_change(tmp_path: Path) -> None:
    events = (
        event("begun", settings="a: 1"),
        event("attempt", name="02", settings=["optim.lr=1e-4"]),
        event("moved", name="02", reason="no share passes"),
    )
    text = facts.happenings(of(tmp_path, *events), "r0")
    assert "name 02, optim.lr=1e-4" in text
    assert "name 02, reason no share passes" in text
    assert "a: 1" not in text


def test_an_experiment_tells_its_command_and_its_settings(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text("identity: {name: 神}")
    record = of(tmp_path, event("begun", command=["fourge", "experiment"], code="77aa"))
    assert "fourge experiment" in facts.origin(record)
    assert "77aa" in facts.origin(record)
    assert "identity.name" in facts.settings(record, "r0")


def test_steps_that_were_done_again_are_said(tmp_path: Path) -> None:
    steps = [event("step", step=at, loss=1.0) for at in (1, 2, 3, 2)]
    assert "2 steps were done again" in facts.happenings(of(tmp_path, *steps), "r0")


@pytest.mark.parametrize("at", [None, "x", -5, 1e300, float("nan")])
def test_a_time_that_is_none_is_not_written(at: object) -> None:
    assert facts.clock(at) == ""


def test_only_settings_that_differ_are_compared(tmp_path: Path) -> None:
    runs = [read_records(write_run(tmp_path / name, 4, lr=lr))[0]
            for name, lr in (("a", 1e-5), ("b", 2e-5))]  # fmt: skip
    text = facts.compared(runs)
    assert "optim.lr" in text
    assert "train.steps" not in text
    assert "No setting differs" in facts.compared([runs[0], runs[0]])
