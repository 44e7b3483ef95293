"""What an experiment shows while it goes on: a line for what it finds, a bar while it trains."""

from typing import TYPE_CHECKING, Any

from fourge.cli.gate_table import show_base, show_gates
from fourge.cli.screen import err
from fourge.cli.train_screen import TrainScreen, line

if TYPE_CHECKING:
    from fourge.harness.work import Told


def show(event: "Told", screen: TrainScreen, *, quiet: bool) -> None:
    """A line for what is the experiment's; the rest is shown as training shows it."""
    from fourge.harness.training import Finished
    from fourge.harness.work import (
        AttemptBegun,
        BaseScored,
        Ended,
        Judged,
        Looked,
        PutAside,
        StageDone,
    )

    if quiet or isinstance(event, Ended | Finished):
        return
    match event:
        case StageDone():
            line(f"{event.stage}: {event.path}{' (as before)' if event.again else ''}")
        case AttemptBegun():
            line(f"attempt {event.name} of {event.of}: {', '.join(event.settings) or 'as given'}")
        case Looked():
            line(f"look at step {event.step}: {_finding(event)}")
        case BaseScored():
            show_base(event.gates, err)
        case Judged():
            line(f"{event.name}, {event.of}: {_finding(event)}")
            if event.of == "gates":
                show_gates(event.gates, err)
        case PutAside():
            line(f"{event.name} put aside: {event.path}")
        case _:
            screen.show(event)


def _finding(event: Any) -> str:
    collapsed = getattr(event, "collapsed", "")
    if collapsed:
        return f"collapsed: {collapsed}"
    return "nothing speaks against it" if event.passed else str(event.reason)
