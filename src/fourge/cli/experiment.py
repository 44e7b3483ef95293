"""``fourge experiment``: teach an identity, try settings in turn, keep what passes every gate."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fourge.cli.experiment_screen import show
from fourge.cli.guarded import guard_options, run_under_guard
from fourge.cli.screen import calm_libraries, echo_json, json_option, out
from fourge.cli.signals import signals
from fourge.cli.together import refuse_crew
from fourge.cli.train_screen import TrainScreen

if TYPE_CHECKING:
    from fourge.harness.work import Ended

lang_option = click.option("--lang", default="en", show_default=True,
                           type=click.Choice(("en", "zh-TW")),
                           help="Of devlog.md and artifacts.md.")  # fmt: skip


@click.command(
    epilog="Exit status: 0 an export passed every gate, 1 no attempt passed, 2 wrong input, "
    "5 does not fit, 124 stopped by the guard, 130 or 143 stopped; the same command goes on."
)
@click.argument("file", metavar="EXP.yaml", type=click.Path(path_type=Path))
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE",
              help="Another value for one setting, as gates.quick=12; may be "
              "repeated.")  # fmt: skip
@lang_option
@json_option
def experiment(file: Path, settings: tuple[str, ...], lang: str, as_json: bool) -> None:
    """Teach a model who it is, as EXP.yaml says.

    Makes the data, asks the base, then attempt by attempt: trains from the clean weights,
    looks every so many steps, scans between base and tuned, and judges the exported file.
    Stopped by whatever, the same command goes on. Nothing is deleted or written over.
    """
    from fourge.config.experiment import load_experiment

    refuse_crew("experiment")
    plan = load_experiment(file, settings)
    if plan.guard.enabled:
        run_under_guard(guard_options(plan))
    calm_libraries()
    from fourge.harness.experiment import experiment as run_experiment
    from fourge.harness.training import Stop
    from fourge.harness.work import Ended

    stop = Stop()
    with signals(stop), TrainScreen(quiet=as_json) as screen:
        for event in run_experiment(plan, command=["fourge", *sys.argv[1:]], stop=stop,
                                    progress=screen.preparing, language=lang):  # fmt: skip
            show(event, screen, quiet=as_json)
    assert isinstance(event, Ended), "an experiment ends with Ended"
    leave(event, plan.out, as_json=as_json)


def leave(ended: "Ended", folder: Path, *, as_json: bool) -> None:
    """Say how it ended, and leave with its status."""
    if as_json:
        echo_json({"passed": ended.passed, "export": ended.export, "stopped": ended.stopped,
                   "record": folder})  # fmt: skip
    elif ended.stopped:
        out.print("stopped; the same command goes on")
    elif ended.passed:
        out.print(f"every gate passes: {ended.export}", soft_wrap=True)
    else:
        out.print(f"no attempt passed; see {folder / 'devlog.md'}", soft_wrap=True)
    if ended.stopped or not ended.passed:
        raise click.exceptions.Exit(128 + ended.stopped if ended.stopped else 1)
