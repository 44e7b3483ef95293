import pytest

from fourge.bench import guard
from fourge.bench.guard import Fast, Steady, fast, steady, table

GIB, MIB = 1 << 30, 1 << 20


def test_a_fast_job_is_stopped_near_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "VARIANTS", ((2, 1),))
    monkeypatch.setattr(guard, "AWAY", GIB // 2)
    monkeypatch.setattr(guard, "AT_MOST", 2 * GIB)
    monkeypatch.setattr(guard, "RECOVER_S", 0)
    monkeypatch.setattr(guard, "_sample_on_time", lambda: None)
    guarded, polled = fast(1)
    assert guarded.status == 124
    assert guarded.stopper == "guard"
    assert guarded.speed > 0
    assert polled.stopper == "poller"


def test_a_calm_job_is_left_alone_and_its_guard_costs_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guard, "BREATH_GIB", 0.1)
    calm, breathing = steady(0.05)
    assert (calm.status, breathing.status) == (0, 0)
    assert breathing.steps == {"warned": 0, "asked": 0, "killed": 0}
    assert 0 < calm.cores < 0.5


def test_the_table_groups_runs_and_fits_the_screen() -> None:
    runs = [Fast("guard", 8, 1024, past * MIB, 3e9, 124) for past in (5, 9, 7)]
    runs.append(Fast("poller", 8, 1024, 3 * GIB, 3e9, -9))
    title, one, two = table(runs)
    assert one.split()[-4:] == ["7", "MiB", "9", "MiB"]
    assert "3 GiB" in two
    steps = {"warned": 0, "asked": 0, "killed": 0}
    row = Steady("breathes by 3 GiB", 1800.0, 0.0012, steps, 0).row()
    assert max(map(len, (title, one, two, row))) <= 80
    assert "0.12% of a core" in row
