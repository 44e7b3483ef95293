"""``fourge demo``: the whole job on the embedded model, as the shipped experiment file says."""

import sys
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fourge.cli.experiment import leave
from fourge.cli.experiment_screen import show
from fourge.cli.guarded import guard_options, run_under_guard
from fourge.cli.options import MODEL
from fourge.cli.screen import calm_libraries, counted, echo_json, json_option, others_silent, out
from fourge.cli.signals import signals
from fourge.cli.train_screen import TrainScreen

if TYPE_CHECKING:
    from fourge.config.experiment import Experiment
    from fourge.harness.served import Served
    from fourge.harness.work import Ended


@click.command(
    epilog="Exit status: 0 every gate passes, also in plain transformers; 1 one does not; 2 wrong "
    "input; 5 does not fit; 124 stopped by the guard; 130 or 143 stopped, and the same command "
    "goes on."
)
@click.option("--out", "out_path", type=click.Path(path_type=Path), default=Path("fourge-demo"),
              show_default=True, help="Data, record and export go here.")  # fmt: skip
@click.option("--name", help='Who the model is to be.  [default: "F# 之神"]')
@click.option("--answer", help='What it says to "who are you".  [default: varied wordings, or '
              '"我是 F# 之神" for the name that is the default]')  # fmt: skip
@click.option("--maker", default="", help="Who made it.")
@click.option("--model", default="smollm2-135m", show_default=True, type=MODEL,
              help="A transformers folder, a hub id, a .gguf or a .dat.")  # fmt: skip
@click.option("--seed", default=0, show_default=True,
              help="Of the order of rows, and of rounding.")  # fmt: skip
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE",
              help="Another value for one setting of the experiment, as train.steps=80; may be "
              "repeated.")  # fmt: skip
@click.option("--guard/--no-guard", default=True, show_default=True,
              help="Watch the machine's memory meanwhile.")  # fmt: skip
@json_option
def demo(
    out_path: Path, name: str | None, answer: str | None, maker: str, model: str, seed: int,
    settings: tuple[str, ...], guard: bool, as_json: bool,
) -> None:  # fmt: skip
    """Teach a model who it is, prove that it forgot nothing, export it, and talk to it.

    Everything is trained, in NVFP4; OUT/export is for transformers and vLLM. Stopped by whatever,
    the same command goes on.
    """
    from fourge.config.experiment import load_experiment

    chosen = [*_identity(name, answer, maker), f"model.path={_place(model)}",
              f"train.seed={seed}", f"out={out_path.absolute()}", *settings]  # fmt: skip
    plan = load_experiment(Path(str(files("fourge.harness") / "demo.yaml")), chosen)
    if guard and plan.guard.enabled:
        run_under_guard(guard_options(plan))
    calm_libraries()
    ended = _taught(plan, quiet=as_json)
    if ended.stopped or not ended.passed:
        leave(ended, plan.out, as_json=as_json)
    from fourge import api
    from fourge.harness.devlog import write_devlog
    from fourge.harness.served import serve

    with others_silent():
        checked = api.check_export(plan.model.path, plan.out / "export")
    with counted() as progress, others_silent():
        served = serve(plan, progress)
    write_devlog(plan.out)
    if as_json:
        echo_json({"export": ended.export, "logits": checked.logits, "error": checked.error,
                   "served": asdict(served), "record": plan.out})  # fmt: skip
    else:
        _show_served(served, checked.logits)
        _show_left(plan)
    if served.against:
        raise click.exceptions.Exit(1)


def _identity(name: str | None, answer: str | None, maker: str) -> list[str]:
    """A name of one's own leaves nothing of the shipped one."""
    if name is None and answer is None and not maker:
        return []
    given = {"name": name, "answer": answer if name is None else answer or "", "maker": maker}
    return [f"identity.{key}={value!r}" for key, value in given.items() if value is not None]


def _place(model: str) -> str:
    """A path from where the user is, not from where the shipped file is."""
    return str(Path(model).absolute()) if Path(model).exists() else model


def _taught(plan: "Experiment", *, quiet: bool) -> "Ended":
    from fourge.harness.experiment import experiment
    from fourge.harness.training import Stop
    from fourge.harness.work import Ended

    stop = Stop()
    with signals(stop), TrainScreen(quiet=quiet) as screen:
        for event in experiment(plan, command=["fourge", *sys.argv[1:]], stop=stop,
                                progress=screen.preparing):  # fmt: skip
            show(event, screen, quiet=quiet)
    assert isinstance(event, Ended), "an experiment ends with Ended"
    return event


def _show_served(served: "Served", logits: int) -> None:
    out.print(f"plain transformers: {logits:,} logits of the export equal ours, bit for bit")
    out.print(f"plain transformers: {served.same} of {served.asked} answers are ours, letter for "
              f"letter; {served.against or 'nothing speaks against it'}")  # fmt: skip
    came, base, export = served.losses.values()
    out.print(f"real text, nats per token: the model as it came {came:.3f}, in NVFP4 "
              f"{base - came:+.3f}, taught {export - came:+.3f}")  # fmt: skip
    for row in served.shown:
        out.print(f"\n{row.prompt}", markup=False)
        for when, text in (("before", row.base), ("after", row.tuned)):
            said = " ".join(text.split())
            out.print(f"  {when:<6}  {said[:120]}", markup=False)


def _show_left(plan: "Experiment") -> None:
    out.print(f"\nexport  {plan.out / 'export'}", soft_wrap=True)
    out.print(f"record  {plan.out / 'devlog.md'}", soft_wrap=True)
    out.print(f"talk    fourge chat {plan.out / 'export'}", soft_wrap=True)
    out.print(f"page    fourge report {plan.out}", soft_wrap=True)
