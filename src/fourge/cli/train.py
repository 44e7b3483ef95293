"""``fourge train``: train as a run file says, and be able to go on."""

from pathlib import Path
from typing import Any

import click

from fourge.cli.guarded import guard_options, run_under_guard
from fourge.cli.screen import calm_libraries, echo_json, json_option
from fourge.cli.signals import signals
from fourge.cli.train_screen import TrainScreen


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
    with signals(stop), TrainScreen(quiet=as_json) as screen:
        last: Any = None
        for event in train_run(run, resume=resume, stop=stop, progress=screen.preparing):
            screen.show(event)
            last = event
    assert isinstance(last, Finished), "a run ends with that"
    if as_json:
        echo_json(last)
    if last.stopped:
        raise click.exceptions.Exit(128 + last.stopped)
