"""``fourge train``: train as a run file says, and be able to go on."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fourge.cli.guarded import guard_options, run_under_guard
from fourge.cli.screen import calm_libraries, echo_json, err, json_option, out
from fourge.core.units import size
from fourge.guard.client import guarded

if TYPE_CHECKING:
    from fourge.harness.training import Happened, Started, Stop


@click.command(
    epilog="Exit status: 0 trained, 2 wrong input, 3 diverged, 5 does not fit, 124 stopped by the "
    "guard, 130 or 143 stopped and saved."
)
@click.argument("run_file", metavar="RUN.yaml", type=click.Path(path_type=Path))
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE",
              help="Another value for one setting, as optim.lr=2e-5; may be repeated.")  # fmt: skip
@click.option("--resume", is_flag=True, help="Go on from the last checkpoint under out.")
@json_option
def train(run_file: Path, settings: tuple[str, ...], resume: bool, as_json: bool) -> None:
    """Train as RUN.yaml says.

    Everything is checked before a weight is loaded. Checkpoints and the record are under
    the run file's out; the trained model is exported there at the end. Ctrl-C or SIGTERM
    saves at the next micro-step and leaves; --resume goes on bit for bit. A guard watches
    the machine's memory and has the run save and leave before it is gone.
    """
    from fourge.config.run import load_run

    run = load_run(run_file, settings)
    if run.guard.enabled:
        run_under_guard(guard_options(run))
    calm_libraries()
    from fourge.harness.training import Finished, Stop
    from fourge.harness.training import train as train_run

    stop = Stop()
    with _signals(stop), _Screen(quiet=as_json) as screen:
        last: Any = None
        for event in train_run(run, resume=resume, stop=stop, progress=screen.preparing):
            screen.show(event)
            last = event
    assert isinstance(last, Finished), "a run ends with that"
    if as_json:
        echo_json(last)
    if last.stopped:
        raise click.exceptions.Exit(128 + last.stopped)


@contextmanager
def _signals(stop: "Stop") -> Iterator[None]:
    """The first signal asks to stop; the second is as if we had not been here.

    But for a second SIGTERM under a guard: a service manager sends it to both, and the guard
    passes its own on. Being killed in time is then the guard's business.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, frame: object) -> None:
        if not stop.running:  # nothing is trained yet, so nothing is lost
            signal.signal(number, before[signal.Signals(number)])
            signal.raise_signal(number)
            return
        stop.signal = number
        _line(f"stopping after this micro-step, with a checkpoint ({signal.strsignal(number)})")
        if number == signal.SIGINT or not guarded():
            signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, ask)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _line(text: str) -> None:
    """A line above the bar; never wrapped where nobody watches."""
    err.print(text, soft_wrap=True)


class _Screen:
    """A progress bar in a terminal; elsewhere a line every now and then."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"), TimeRemainingColumn(compact=True),
            console=err, transient=True, disable=quiet or not err.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=None, numbers="")
        self._steps, self._doing = 0, ""

    def __enter__(self) -> "_Screen":
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def preparing(self, what: str, done: int, total: int) -> None:
        if what != self._doing:
            self._doing = what
            self._bar.reset(self._task, description=what, total=total)
            if not err.is_terminal and not self._quiet:
                _line(what)
        self._bar.update(self._task, completed=done, total=total)

    def show(self, event: "Happened") -> None:
        from fourge.harness.saving import Saved
        from fourge.harness.training import Finished, Started

        if self._quiet:
            return
        if isinstance(event, Started):
            self._begin(event)
        elif isinstance(event, Saved):
            _line(f"checkpoint of step {event.step} in {event.seconds:.1f} s: {event.path}")
        elif isinstance(event, Finished):
            self._end(event)
        else:
            self._step(event)

    def _begin(self, event: "Started") -> None:
        self._steps = event.steps
        _line(f"run {event.run}: {event.trained:,} parameters in {event.tensors} tensors, "
              f"{sum(event.rows):,} rows")  # fmt: skip
        _line(f"on {event.device}, computing in {event.compute_dtype}")
        if event.first > event.steps:
            _line("the run is complete; the model is exported again")
        elif event.first > 1:
            _line(f"going on at step {event.first} of {event.steps}")
        if event.truncated:
            _line(f"{event.truncated} rows are longer than data.max_tokens and lose their start")
        if event.untaught:
            _line(f"{event.untaught} earlier answers are context only: the template changes them")
        first = "training (the first step compiles)"
        self._bar.reset(self._task, description=first, total=event.steps)
        self._bar.update(self._task, completed=event.first - 1)

    def _step(self, event: Any) -> None:
        self._bar.update(self._task, description="training")
        kl = "" if event.kl is None else f" kl {event.kl:.4f}"
        peak = size(max(event.peak.values(), default=0))
        numbers = f"loss {event.loss:.4f}{kl} {event.tokens_per_s:.0f} tok/s {peak}"
        self._bar.update(self._task, completed=event.step, numbers=numbers)
        every = max(1, self._steps // 20)
        if not err.is_terminal and (event.step % every == 0 or event.step == self._steps):
            _line(f"step {event.step}/{self._steps} {numbers} lr {event.lr:.2e} "
                  f"norm {event.grad_norm:.3g} moved {event.moved:.1%}")  # fmt: skip

    def _end(self, event: Any) -> None:
        if event.stopped:
            out.print(f"stopped after step {event.step} of {self._steps}; --resume goes on")
        else:
            out.print(f"trained {event.step} steps; the model is in {event.export}")
