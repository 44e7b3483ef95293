"""What a training run shows while it goes on: a bar in a terminal, elsewhere some lines."""

from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fourge.cli.screen import err, out
from fourge.core.units import size

if TYPE_CHECKING:
    from fourge.harness.training import Happened, Started


def line(text: str) -> None:
    """A line above the bar; never wrapped where nobody watches."""
    err.print(text, soft_wrap=True)


class TrainScreen:
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

    def __enter__(self) -> "TrainScreen":
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def preparing(self, what: str, done: int, total: int) -> None:
        if what != self._doing:
            self._doing = what
            self._bar.reset(self._task, description=what, total=total)
            if not err.is_terminal and not self._quiet:
                line(what)
        self._bar.update(self._task, completed=done, total=total)

    def show(self, event: "Happened") -> None:
        from fourge.harness.saving import Saved
        from fourge.harness.training import Finished, Started

        if self._quiet:
            return
        if isinstance(event, Started):
            self._begin(event)
        elif isinstance(event, Saved):
            line(f"checkpoint of step {event.step} in {event.seconds:.1f} s: {event.path}")
        elif isinstance(event, Finished):
            self._end(event)
        else:
            self._step(event)

    def _begin(self, event: "Started") -> None:
        self._steps = event.steps
        line(f"run {event.run}: {event.trained:,} parameters in {event.tensors} tensors, "
              f"{sum(event.rows):,} rows")  # fmt: skip
        line(f"on {event.device}, computing in {event.compute_dtype}")
        if event.first > event.steps:
            line("the run is complete; the model is exported again")
        elif event.first > 1:
            line(f"going on at step {event.first} of {event.steps}")
        if event.truncated:
            line(f"{event.truncated} rows are longer than data.max_tokens and lose their start")
        if event.untaught:
            line(f"{event.untaught} earlier answers are context only: the template changes them")
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
            line(f"step {event.step}/{self._steps} {numbers} lr {event.lr:.2e} "
                  f"norm {event.grad_norm:.3g} moved {event.moved:.1%}")  # fmt: skip

    def _end(self, event: Any) -> None:
        if event.stopped:
            out.print(f"stopped after step {event.step} of {self._steps}; --resume goes on")
        else:
            out.print(f"trained {event.step} steps; the model is in {event.export}")
