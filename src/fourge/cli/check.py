"""``fourge check``: probe a model, compare it with its base, and say whether it passes."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from fourge.cli.gate_table import show_gates
from fourge.cli.options import MODEL
from fourge.cli.screen import calm_libraries, counted, echo_json, err, json_option, listed, out

if TYPE_CHECKING:
    from fourge.evaluate.check import Server
    from fourge.evaluate.verdict import Verdict

SHOWN = 3  # failing answers of a gate


@click.command(
    epilog="Exit status: 0 every gate passes, 1 one fails or is undecided, 2 wrong input."
)
@click.argument("model", type=MODEL)
@click.option(
    "--base",
    type=MODEL,
    help="The model it was tuned from: abilities are compared with it, in NVFP4 if MODEL is.",
)
@click.option("--name", help="The name that was taught.")
@click.option("--maker", default="", help="Its maker, which may be a name that is old elsewhere.")
@click.option("--old-name", "old_names", multiple=True,
              help="A name that must no longer be claimed, beside the known ones; may be "
              "repeated.")  # fmt: skip
@click.option("--languages", default="zh-TW,zh-CN,en", show_default=True,
              help="Of the probes.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1), help="At most so many items of each set.")
@click.option("--margin", default=0.05, show_default=True, type=click.FloatRange(0.001, 0.5),
              help="How much worse than the base abilities and tasks may be.")  # fmt: skip
@click.option("--served-by", default="fourge", show_default=True,
              type=click.Choice(("fourge", "transformers")),
              help="Load MODEL as fourge does, or with plain transformers.")  # fmt: skip
@click.option("--task", "tasks", multiple=True, metavar="TASK",
              help="A task of lm-evaluation-harness, or the .yaml file of one, compared with the "
              "base as one more gate; may be repeated.")  # fmt: skip
@click.option("--task-limit", type=click.IntRange(1), help="At most so many items of each task.")
@json_option
def check(
    model: str, base: str | None, name: str | None, maker: str, old_names: tuple[str, ...],
    languages: str, limit: int | None, margin: float, served_by: "Server", tasks: tuple[str, ...],
    task_limit: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Ask MODEL the probes: identity, separation, leak, abilities, degeneration, text.

    Answers are cached by the digest of the weights, so that a base is asked once.
    """
    _require_something(name, base, tasks, task_limit)
    calm_libraries()
    from fourge.data.identity import require_languages
    from fourge.data.names import OLD_NAMES
    from fourge.evaluate.check import check as check_model
    from fourge.evaluate.check import choose, path_of_base
    from fourge.evaluate.score import Names
    from fourge.evaluate.tasks import find_tasks, task_gates

    chosen = listed(languages)
    require_languages(chosen)
    questions = choose(chosen, name=name, limit=limit)
    names = None if name is None else Names(name, maker, (*OLD_NAMES, *old_names))
    found = find_tasks(tasks) if tasks else []
    if base is not None and path_of_base(model) == "packed":
        err.print("MODEL is NVFP4, so the base is asked in NVFP4 too")
    with counted() as progress:
        verdict = check_model(model, base, questions, names, margin=margin, served_by=served_by,
                              progress=progress)  # fmt: skip
        if found and base is not None:
            more = task_gates(model, base, found, margin=margin, limit=task_limit,
                              served_by=served_by, progress=progress)  # fmt: skip
            verdict = replace(verdict, gates=(*verdict.gates, *more))
    if as_json:
        echo_json({**asdict(verdict), "passed": verdict.passed, "probes": questions.versions})
    else:
        _show(verdict)
    if not verdict.passed:
        raise click.exceptions.Exit(1)


def _require_something(
    name: str | None, base: str | None, tasks: tuple[str, ...], task_limit: int | None
) -> None:
    if name is None and base is None:
        raise click.UsageError("Give --name, --base or both: without them nothing can be judged.")
    if tasks and base is None:
        raise click.UsageError("Give --base: a --task is compared with it.")
    if task_limit and not tasks:
        raise click.UsageError("Give --task: without one, --task-limit limits nothing.")


def _show(verdict: "Verdict") -> None:
    show_gates(verdict.gates, out)
    for gate in verdict.gates:
        if gate.decision == "fail":
            _show_failures(verdict, gate.name)
    out.print("every gate passes" if verdict.passed else "not every gate passes")


def _show_failures(verdict: "Verdict", gate: str) -> None:
    failures = [failure for failure in verdict.failures if failure.gate == gate]
    for failure in failures[:SHOWN]:
        answer = " ".join(failure.answer.split())[:100]
        out.print(f"{gate}: {failure.prompt!r} -> {answer!r}: {failure.why}", markup=False)
    if len(failures) > SHOWN:
        out.print(f"{gate}: and {len(failures) - SHOWN} more (--json lists them)")
