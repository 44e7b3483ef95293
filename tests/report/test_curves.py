"""Which charts a run has."""

from pathlib import Path

import pytest

from fourge.report.curves import compared_charts, memory_charts, resumed, step_charts
from fourge.report.record import Record, read_records
from tests.report.example import BEGAN, event, write_lines, write_run


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return read_records(write_run(tmp_path / "a", 40))[0]


def test_every_number_of_a_step_has_its_chart(record: Record) -> None:
    charts = {chart.name: chart for chart in step_charts(record, "r0")}
    assert list(charts) == [f"r0-{name}" for name in (
        "loss", "kl", "kl-weight", "lr", "norm", "moved", "codes", "speed")]  # fmt: skip
    assert [line.label for line in charts["r0-loss"].lines] == ["minimised", "of the targets"]
    assert all(len(line.y) == 40 for chart in charts.values() for line in chart.lines)
    assert charts["r0-norm"].log
    assert charts["r0-moved"].share


def test_a_number_that_was_not_recorded_has_none(tmp_path: Path) -> None:
    rows = [event("step", step=at, loss=1.0, kl=None, grad_norm=0.0) for at in (1, 2)]
    write_lines(tmp_path / "events.jsonl", rows)
    charts = step_charts(read_records(tmp_path)[0], "r0")
    assert [chart.name for chart in charts] == ["r0-loss", "r0-norm"]
    assert not charts[1].log, "a zero has no logarithm"


def test_where_a_run_went_on_is_marked(record: Record) -> None:
    assert [(mark.x, mark.label) for mark in resumed(record)] == [(20.5, "resumed")]


def test_memory_is_by_phase_against_the_plan_and_the_limit(record: Record) -> None:
    held, left = memory_charts(record, "r0")
    assert [line.label for line in held.lines] == ["forward", "backward"]
    assert [(level.y, level.label) for level in held.levels] == [
        (3.0, "planned peak"), (4.0, "guard's limit")]  # fmt: skip
    assert 2.1 <= held.lines[0].y[0] <= 2.15
    assert held.lines[0].x[0] == pytest.approx(3 / 60)
    assert [line.label for line in left.lines] == ["left", "to the guard's line"]
    assert left.lines[0].y[0] == pytest.approx(9000 / 1024)
    for chart in (held, left):
        assert [(mark.x, mark.alarm) for mark in chart.marks] == [(1.0, True)]
        assert "1.2 GiB to the line" in chart.marks[0].label


def test_minutes_count_from_whoever_wrote_first(tmp_path: Path) -> None:
    write_lines(tmp_path / "events.jsonl", [event("step", 120.0, step=1, peak={"forward": 1})])
    write_lines(tmp_path / "guard.jsonl", [event("sample", 60.0, left_mib=5)])
    record = read_records(tmp_path)[0]
    assert record.began_at == BEGAN + 60
    assert memory_charts(record, "r0")[0].lines[0].x == [1.0]


def test_runs_are_compared_curve_by_curve(tmp_path: Path) -> None:
    runs = [read_records(write_run(tmp_path / name, 5))[0] for name in ("快", "slow")]
    charts = compared_charts(runs)
    assert len(charts) == 8
    assert all([line.label for line in chart.lines] == ["快", "slow"] for chart in charts)
