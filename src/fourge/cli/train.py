"""``fourge train``: train as a run file says, and be able to go on."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fourge.cli.guarded import guard_options, run_under_guard
from fourge.cli.screen import calm_libraries, echo_json, json_option
from fourge.cli.signals import signals
from fourge.cli.together import crew_of
from fourge.cli.train_screen import TrainScreen
from fourge.core.crew import Crew
from fourge.shard.launched import launched

if TYPE_CHECKING:
    from fourge.config.run import Run


@click.command(
    epilog="Exit status: 0 trained, 2 wrong input, 3 diverged, 4 another rank is gone, 5 does not "
    "fit, 124 stopped by the guard, 130 or 143 stopped and saved."
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

    On several processes or machines: torchrun --nproc-per-node 2 -m fourge train RUN.yaml
    """
    from fourge.config.run import load_run

    place, run = launched(), load_run(run_file, settings)
    if run.guard.enabled:
        run_under_guard(guard_options(run, 0 if place is None else place.rank))
    calm_libraries()
    with crew_of(place, run.model.device) as crew:
        _train(run, resume, as_json, crew)


def _train(run: "Run", resume: bool, as_json: bool, crew: Crew) -> None:
    from fourge.harness.training import Finished, Stop
    from fourge.harness.training import train as train_run

    stop = Stop()
    with signals(stop), TrainScreen(quiet=as_json or not crew.is_first) as screen:
        last: Any = None
        tell = screen.preparing
        for event in train_run(run, resume=resume, stop=stop, progress=tell, crew=crew):
            screen.show(event)
            last = event
    assert isinstance(last, Finished), "a run ends with that"
    if as_json and crew.is_first:
        echo_json(last)
    if last.stopped:
        raise click.exceptions.Exit(128 + last.stopped)
