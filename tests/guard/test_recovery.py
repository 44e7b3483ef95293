import pytest

from fourge.guard.recovery import recovered
from tests.guard.guarded import kinds, python, run, start, until
from tests.guard.trees import GIB, Machine


@pytest.mark.parametrize(
    ("before", "lowest", "left", "enough"),
    [
        (100, 20, 98, True),  # 2 GiB may be missing
        (100, 20, 97, False),
        (100, 92, 99, True),  # of a small fall an eighth
        (100, 92, 98, False),
        (100, 100, 100, True),
        (100, 100, 99, False),
        (100, 20, 120, True),
    ],
)
def test_seven_eighths_are_back_and_less_than_2_gib_are_missing(
    before: int, lowest: int, left: int, enough: bool
) -> None:
    assert recovered(before * GIB, lowest * GIB, left * GIB) == enough


def test_waiting_ends_when_nothing_changes_any_more(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fourge.guard import recovery
    from fourge.guard.counters import Counters

    class Bell:
        def wait(self, seconds: float) -> bytes:
            clock.append(clock[-1] + seconds)
            return b""

    clock = [0.0]
    monkeypatch.setattr(recovery.time, "monotonic", lambda: clock[-1])
    with Counters(machine.root) as counters:
        waited = recovery._wait(
            counters,
            lambda reading: False,
            Bell(),
            180.0,
            give_up_after_s=5.0,  # type: ignore[arg-type]
        )
    assert not waited.enough
    assert waited.seconds == pytest.approx(5.0, abs=0.15)


def test_a_signal_ends_the_wait(machine: Machine) -> None:
    machine.set(8 * GIB)
    process = start(machine, ["true"], recover_s="60")
    until(lambda: (machine.root / "log").exists() and kinds(machine) == ["start"])
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 124
    assert kinds(machine) == ["start", "refused"]


def test_memory_that_cannot_be_read_is_not_waited_for(machine: Machine) -> None:
    script = f"open({str(machine.meminfo)!r}, 'w').write('nothing'); import time; time.sleep(60)"
    status, _, err = run(machine, python(script), recover_s="60")
    assert status == 124
    assert "whether memory came back is not known" in err
