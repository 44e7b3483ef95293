import signal
from contextlib import nullcontext

import pytest

from fourge.cli import signals as module
from fourge.harness.training import Stop


@pytest.mark.parametrize(
    ("number", "under_guard", "second_is_deadly"),
    [(signal.SIGTERM, False, True), (signal.SIGTERM, True, False), (signal.SIGINT, True, True)],
)
def test_under_a_guard_a_second_sigterm_does_not_cut_the_saving_short(
    number: signal.Signals, under_guard: bool, second_is_deadly: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def deadly(number: int, frame: object) -> None:
        raise InterruptedError

    monkeypatch.setattr(module, "guarded", lambda: under_guard)
    before = signal.signal(number, deadly)
    stop = Stop(running=True)
    try:
        with module.signals(stop):
            signal.raise_signal(number)
            assert stop.signal == number
            with pytest.raises(InterruptedError) if second_is_deadly else nullcontext():
                signal.raise_signal(number)
    finally:
        signal.signal(number, before)


def test_where_nothing_is_trained_a_signal_is_what_it_was() -> None:
    heard = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        stop = Stop()
        with module.signals(stop):
            signal.raise_signal(signal.SIGTERM)
        assert heard == [signal.SIGTERM]
        assert stop.signal == 0
        signal.raise_signal(signal.SIGTERM)
        assert len(heard) == 2
    finally:
        signal.signal(signal.SIGTERM, before)
