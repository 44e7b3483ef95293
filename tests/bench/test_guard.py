import threading
from pathlib import Path

import pytest

from fourge.bench import guard
from fourge.bench.guard import Fast, Steady, fast, steady, table
from fourge.guard.counters import Counters
from tests.guard.trees import Machine

GIB, MIB = 1 << 30, 1 << 20


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """What others do on the real one would be measured too."""
    made = Machine(tmp_path / "root")
    monkeypatch.setattr(guard, "ROOT", made.root)
    monkeypatch.setattr(guard, "AT_MOST", 64 * MIB)
    monkeypatch.setattr(guard, "RECOVER_S", 0)
    monkeypatch.setattr(guard, "BREATH_GIB", 0.1)
    return made


@pytest.mark.parametrize(("stopper", "status"), [(guard._guard, 124), (guard._poller, -9)])
def test_a_job_past_its_line_is_stopped_and_how_far_is_measured(
    machine: Machine, stopper: guard.Stopper, status: int
) -> None:
    crossed = threading.Timer(1.5, machine.set, [38 * GIB])
    crossed.start()
    with Counters(machine.root) as counters:
        found = guard._fast(counters, stopper, "it", 2, 1)
    crossed.join()
    assert (found.status, found.past) == (status, GIB // 2)
    assert found.speed > 1e6


def test_every_variant_runs_under_the_guard_and_under_the_poller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(counters: Counters, stopper: object, name: str, processes: int, piece: int) -> Fast:
        return Fast(name, processes, piece, 0, 1.0, 0)

    monkeypatch.setattr(guard, "_fast", run)
    monkeypatch.setattr(guard, "_sample_on_time", lambda: None)
    found = [(each.processes, each.piece_mib, each.stopper) for each in fast(2)]
    assert len(set(found)) == 8
    assert [each[2] for each in found] == ["guard", "poller"] * 4 + ["poller", "guard"] * 4


def test_a_calm_job_is_left_alone_and_its_guard_costs_little(machine: Machine) -> None:
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
