"""What a run's files say, however they are damaged and while they grow."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fourge.core.errors import FormatError
from fourge.report.record import Record, Tail, number, numbers, read_records
from tests.report.example import event, started, write_lines, write_run

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)  # fmt: skip


def test_a_run_is_taken_in_whole(tmp_path: Path) -> None:
    (record,) = read_records(write_run(tmp_path / "身份", 10))
    assert record.name == "身份"
    assert list(record.steps["step"]) == list(range(1, 11))
    assert record.steps["peak.forward"][0] > 2 << 30
    assert [each["kind"] for each in record.events] == [
        "started", "planned", "saved", "finished", "started", "finished", "verdict", "answers"
    ]  # fmt: skip
    assert [each["kind"] for each in record.guard] == ["start", "warned", "end"]
    assert len(record.samples) == 30
    assert record.last("finished")["step"] == 10
    assert record.settings()["model"] == {"path": "smollm2-135m"}


def test_a_line_is_read_when_it_is_whole_and_only_once(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    tail = Tail(path)
    assert list(tail.new()) == []
    line = json.dumps(event("step", step=1)).encode()
    path.write_bytes(line + b"\n" + line[:20])
    assert len(list(tail.new())) == 1
    assert list(tail.new()) == []
    with path.open("ab") as file:
        file.write(line[20:] + b"\n")
    assert len(list(tail.new())) == 1


def test_a_record_takes_in_what_is_added(tmp_path: Path) -> None:
    write_lines(tmp_path / "events.jsonl", [started(5)])
    record = Record(tmp_path)
    record.read()
    record.read()
    assert record.taken == 1
    with (tmp_path / "events.jsonl").open("a") as file:
        file.write(json.dumps(event("step", 9.0, step=1, loss=2.0)) + "\n")
    record.read()
    assert record.taken == 2
    assert record.steps.points("step", "loss") == ([1], [2.0])
    assert record.last_at == event("step", 9.0)["t"]


def test_torn_and_foreign_lines_are_passed_over(tmp_path: Path) -> None:
    text = '{"v": 1, "kind": "st\n[1]\n{"v": 9, "kind": "step", "step": 1}\n\xff\n'
    (tmp_path / "events.jsonl").write_bytes(text.encode("latin-1"))
    (record,) = read_records(tmp_path)
    assert record.taken == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.dictionaries(st.sampled_from(["step", "t", "peak", "loss", "first"]), JSON))
def test_no_field_of_an_event_is_trusted(tmp_path: Path, fields: dict[str, Any]) -> None:
    lines = [{"v": 1, "kind": kind, **fields} for kind in ("step", "started", "sample")]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    for name in ("events.jsonl", "guard.jsonl"):
        (tmp_path / name).write_text(text)
    (record,) = read_records(tmp_path)
    assert record.taken == 6
    assert record.began_at >= 0 or fields["t"] < 0


def test_numbers_are_finite_and_no_truth_values() -> None:
    found = numbers({"a": True, "b": float("inf"), "c": 3, "d": "4", "peak": {"x": 5, "y": None}})
    assert found == {"c": 3.0, "peak.x": 5.0}
    assert number("7", 2.0) == 2.0


def test_an_experiment_is_its_own_record_and_those_of_its_runs(tmp_path: Path) -> None:
    write_run(tmp_path / "b", 2, judged=False)
    write_run(tmp_path / "stages" / "a", 2, judged=False)
    write_lines(tmp_path / "events.jsonl", [event("verdict", 99.0, gates=[])])
    names = [record.name for record in read_records(tmp_path)]
    assert names[0] == tmp_path.name
    assert sorted(names[1:]) == ["a", "b"]


def test_known_records_go_on_and_new_ones_are_found(tmp_path: Path) -> None:
    known: dict[Path, Record] = {}
    (first,) = read_records(write_run(tmp_path / "a", 2, judged=False).parent, known)
    taken = first.taken
    write_run(tmp_path / "b", 2, judged=False)
    again = read_records(tmp_path, known)
    assert len(again) == 2
    assert first in again
    assert first.taken == taken


def test_a_folder_without_a_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="has no record"):
        read_records(tmp_path)


@pytest.mark.parametrize("text", ["a: [", "- 1", "\x00"])
def test_settings_that_cannot_be_read_are_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.yaml").write_text(text)
    assert Record(tmp_path).settings() == {}
