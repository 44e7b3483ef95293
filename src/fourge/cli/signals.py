"""Ctrl-C and SIGTERM as a request: finish the micro-step, save, leave."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fourge.cli.screen import err
from fourge.guard.client import guarded

if TYPE_CHECKING:
    from fourge.harness.training import Stop


@contextmanager
def signals(stop: "Stop") -> Iterator[None]:
    """The first signal asks to stop; the second is as if we had not been here.

    But for a second SIGTERM under a guard: a service manager sends it to both, and the guard
    passes its own on. Being killed in time is then the guard's business.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, frame: object) -> None:
        if not stop.running:  # nothing is being trained, so nothing is lost
            signal.signal(number, before[signal.Signals(number)])
            signal.raise_signal(number)
            return
        stop.signal = number
        text = f"stopping after this micro-step, with a checkpoint ({signal.strsignal(number)})"
        err.print(text, soft_wrap=True)
        if number == signal.SIGINT or not guarded():
            signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, ask)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
