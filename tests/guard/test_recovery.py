import time

import pytest

from fourge.guard.bell import Bell
from fourge.guard.counters import Counters
from fourge.guard.policy import Limits
from fourge.guard.post import Post
from fourge.guard.record import Record
from fourge.guard.recovery import _wait, recovered
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


class Clock(Bell):
    """A bell that never rings, and the time that passes while one waits for it."""

    def __init__(self) -> None:
        self.now = 0.0

    def wait(self, seconds: float) -> bytes:
        self.now += seconds
        return b""


@pytest.mark.parametrize(("at_most_s", "lasts"), [(180.0, 5.0), (2.0, 2.0)])
def test_waiting_ends_when_nothing_changes_any_more(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, at_most_s: float, lasts: float
) -> None:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    with Counters(machine.root) as counters:
        post = Post(counters, Limits(GIB, None, 2, 1), Record(None), clock)
        waited = _wait(post, lambda reading: False, at_most_s, give_up_after_s=5.0)
    assert not waited.enough
    assert waited.seconds == pytest.approx(lasts, abs=0.15)


def test_memory_that_still_moves_is_waited_for(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(Clock):
        """Memory comes back for 20 s, by 200 MiB a second."""

        def wait(self, seconds: float) -> bytes:
            machine.set(10 * GIB + int(min(self.now, 20.0) * 200 * (1 << 20)))
            return super().wait(seconds)

    clock = Slow()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    with Counters(machine.root) as counters:
        post = Post(counters, Limits(GIB, None, 2, 1), Record(None), clock)
        waited = _wait(post, lambda reading: False, 180.0, give_up_after_s=5.0)
    assert 24 < waited.seconds < 27


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
