"""The record of a run: whole lines, in order, whatever happened to the writer."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fourge.core.errors import FormatError, OutputError
from fourge.core.events import FILE, VERSION, EventLog, read_events

VALUES = st.one_of(
    st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False), st.booleans(),
    st.none(), st.text(st.characters(exclude_categories=["Cs"])),
)  # fmt: skip


def kinds(path: Path) -> list[str]:
    return [event["kind"] for event in read_events(path)]


def test_what_is_written_is_read_in_order(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "deep" / "down" / FILE, "run-1")
    start = time.time()
    for step in range(5):
        log.write("step", step=step, loss=1 / (step + 1))
    events = list(read_events(log.path))
    assert [event["step"] for event in events] == list(range(5))
    assert [event["loss"] for event in events] == [1 / (step + 1) for step in range(5)]
    for event in events:
        assert list(event)[:4] == ["v", "t", "run", "kind"]
        assert (event["v"], event["run"], event["kind"]) == (VERSION, "run-1", "step")
        assert start - 0.01 <= event["t"] <= time.time() + 0.01


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.dictionaries(st.text("abcdef", min_size=1), VALUES))
def test_any_value_comes_back_as_it_was(
    tmp_path: Path, values: dict[str, str | float | bool | None]
) -> None:
    log = EventLog(tmp_path / FILE, "run")
    log.write("any", **values)
    assert log.path.read_bytes().count(b"\n") == len(list(read_events(log.path)))
    *_, event = read_events(log.path)
    assert {key: event[key] for key in values} == values


def test_chinese_text_is_stored_as_itself(tmp_path: Path) -> None:
    log = EventLog(tmp_path / FILE, "运行")
    log.write("sample", text="你好，世界\n第二行\u2028末")
    raw = log.path.read_text(encoding="utf-8")
    assert "你好，世界" in raw
    assert raw.count("\n") == 1
    (event,) = read_events(log.path)
    assert event["text"] == "你好，世界\n第二行\u2028末"
    assert event["run"] == "运行"


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_json_does_not_have_is_refused_and_nothing_is_written(
    tmp_path: Path, bad: float
) -> None:
    log = EventLog(tmp_path / FILE, "run")
    log.write("step", loss=1.0)
    with pytest.raises(ValueError, match="not JSON compliant"):
        log.write("step", loss=bad)
    assert kinds(log.path) == ["step"]


def test_a_line_torn_anywhere_costs_that_line_only(tmp_path: Path) -> None:
    path = tmp_path / FILE
    log = EventLog(path, "run")
    log.write("first")
    log.write("torn", text="字 {}")
    whole = path.read_bytes()
    start = whole.index(b"\n") + 1
    for end in range(start, len(whole)):
        path.write_bytes(whole[:end])
        complete = end == len(whole) - 1  # only the line's end is missing
        expected = ["first", "torn"] if complete else ["first"]
        assert kinds(path) == expected
        EventLog(path, "again").write("after")
        assert kinds(path) == [*expected, "after"]
        assert path.read_bytes().startswith(whole[:end])  # nothing is taken away


def test_opening_a_whole_file_changes_no_byte(tmp_path: Path) -> None:
    path = tmp_path / FILE
    EventLog(path, "run")
    assert not path.exists()
    EventLog(path, "run").write("one")
    before = path.read_bytes()
    EventLog(path, "run")
    assert path.read_bytes() == before
    path.write_bytes(b"")
    EventLog(path, "run")
    assert path.read_bytes() == b""


def test_lines_that_are_no_events_of_this_version_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / FILE
    lines = ["", "not json", "[1]", "3", "null", '{"kind": "old"}', '{"v": 99, "kind": "new"}',
             json.dumps({"v": VERSION, "kind": "good"})]  # fmt: skip
    path.write_bytes("\n".join(lines).encode() + b"\n\xff\xfe broken\n")
    assert kinds(path) == ["good"]


def test_several_writers_of_one_run_tear_no_line(tmp_path: Path) -> None:
    path = tmp_path / FILE
    script = (
        "import sys; from pathlib import Path; from fourge.core.events import EventLog\n"
        "log = EventLog(Path(sys.argv[1]), 'run')\n"
        "for i in range(200): log.write('step', writer=sys.argv[2], i=i, fill='字' * 500)"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", script, str(path), name]) for name in ("a", "b")
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    events = list(read_events(path))
    assert len(events) == 400
    for name in ("a", "b"):
        assert [e["i"] for e in events if e["writer"] == name] == list(range(200))


def test_a_record_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    log = EventLog(tmp_path / FILE, "run")
    for count in range(1, 5):
        log.write("step")
        assert len(kinds(log.path)) == count


def test_a_missing_record_is_an_error_for_the_user(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="does not exist"):
        list(read_events(tmp_path / FILE))


def test_a_place_that_cannot_be_written_is_an_error_for_the_user(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError):
        EventLog(tmp_path / "file" / FILE, "run")
