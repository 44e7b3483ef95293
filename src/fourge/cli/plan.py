"""``fourge plan``: what a run will hold in memory, and whether it fits."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fourge.cli.options import (
    COUNT,
    MODEL_OR_SHAPE,
    device_option,
    master_option,
    moments_option,
    recompute_option,
    release_option,
)
from fourge.cli.plan_traffic import bytes_per_s, traffic_lines
from fourge.cli.screen import calm_libraries, echo_json, json_option, out
from fourge.core.errors import ConfigError
from fourge.core.units import size
from fourge.guard.sizes import parse_size

if TYPE_CHECKING:
    from fourge.memory.advice import Advice
    from fourge.memory.limit import Limit
    from fourge.memory.machine import Machine
    from fourge.memory.plan import Plan
    from fourge.memory.wanted import Wanted

GIB = 1 << 30


@click.command(epilog="Exit status: 0 it fits, 2 wrong input, 5 it does not fit.")
@click.argument("run_file", metavar="[RUN.yaml]", required=False, type=click.Path(path_type=Path))
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE",
              help="Another value for one setting of RUN.yaml; may be repeated.")  # fmt: skip
@click.option("--model", type=MODEL_OR_SHAPE, metavar="SHAPE|PATH",
              help="Without RUN.yaml: a model, or a shape such as qwen3-4b.")  # fmt: skip
@click.option("--tokens", default=64, show_default=True, type=COUNT, help="Tokens per sequence.")
@click.option("--batch", default=1, show_default=True, type=COUNT, help="Sequences.")
@master_option
@moments_option
@click.option("--scheme", default="w4a16", show_default=True,
              type=click.Choice(("w4a16", "w4a4", "none")),
              help="NVFP4 weights in forward; w4a4: activations too; or none.")  # fmt: skip
@recompute_option
@release_option
@device_option
@click.option("--world-size", default=1, show_default=True, type=COUNT,
              help="Processes that share it.")  # fmt: skip
@click.option("--link", metavar="SPEED",
              help="Of the network, as 200Gbit: what a step's traffic takes.")  # fmt: skip
@click.option("--step-s", type=float, metavar="SECONDS",
              help="What a step computes without a network, as fourge step says.")  # fmt: skip
@click.option("--limit", metavar="SIZE",
              help="What may be used, as 100GiB.  [default: what is left]")  # fmt: skip
@click.option("--offload", metavar="PLACE", help="Refused, with the reason.")
@click.option("--calibrate", is_flag=True, help="First measure this machine by two short runs.")
@click.option("--picture", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Draw the phases and the limit, as .png, .svg or .pdf.")  # fmt: skip
@json_option
def plan(
    run_file: Path | None, settings: tuple[str, ...], model: str | None, limit: str | None,
    offload: str | None, calibrate: bool, picture: Path | None, as_json: bool,
    link: str | None, step_s: float | None, **flags: Any,
) -> None:  # fmt: skip
    """Say what training would hold in memory, part by part and phase by phase.

    Takes a run file, or --model and the flags beside it. No weight is read. If it does
    not fit, the cheapest changes that make it fit are listed, each with its price.
    """
    run, given = _asked(run_file, settings, model, limit)
    speed = None if link is None else bytes_per_s(link)
    calm_libraries()
    from fourge.memory.advice import advise, refuse_offload
    from fourge.memory.machine import this_machine
    from fourge.memory.plan import plan as make_plan

    if offload:
        refuse_offload(offload)
    machine = _measured() if calibrate else this_machine()
    wanted = _wanted(run, model, flags)
    made, allowed = make_plan(wanted, machine), given or _allowed(run)
    fits = made.peak <= allowed.nbytes
    advice = None if fits else advise(wanted, machine, allowed.nbytes)
    if picture:
        from fourge.memory.picture import draw

        draw(made, allowed, picture, str(run_file or model))
    sent = traffic_lines(wanted, speed, step_s)
    if as_json:
        echo_json({**_report(made, allowed, advice), **sent.numbers})
    else:
        _print(made, allowed, advice)
        for text in sent.lines:
            out.print(text)
    if not fits:
        raise click.exceptions.Exit(5)


def _asked(
    run_file: Path | None, settings: tuple[str, ...], model: str | None, limit: str | None
) -> tuple[Any, "Limit | None"]:
    """The run, if there is a file, and --limit; no torch is loaded for a mistake."""
    from fourge.memory.limit import Limit

    if (run_file is None) == (model is None):
        raise ConfigError(
            "One thing is planned at a time.", fix="give a run file, or --model with its flags"
        )
    try:
        given = None if limit in (None, "auto") else Limit(parse_size(str(limit)), "--limit")
    except ValueError as error:
        raise ConfigError(f"--limit: {error}.") from error
    if run_file is None:
        return None, given
    from fourge.config.run import load_run

    return load_run(run_file, settings), given


def _allowed(run: Any) -> "Limit":
    from fourge.harness.planning import limit_of_run
    from fourge.memory.limit import machine_limit

    return machine_limit() if run is None else limit_of_run(run)


def _wanted(run: Any, model: str | None, flags: dict[str, Any]) -> "Wanted":
    from fourge.harness.planning import wanted_of_model, wanted_of_run
    from fourge.model.swap import choose_device

    size = flags["world_size"]
    if run is not None:
        return wanted_of_run(run, world_size=size)
    flags["batch"] = -(-flags["batch"] // size)
    assert model is not None, "one of the two was given"
    device = choose_device(flags.pop("device")).type
    release = not flags.pop("no_release")
    return wanted_of_model(model, device=device, release=release, **flags)


def _measured() -> "Machine":
    from fourge.memory.calibrate import calibrate
    from fourge.memory.machine import keep

    machine = calibrate()
    click.echo(f"calibrated: {keep(machine)}", err=True)
    return machine


def _report(made: "Plan", limit: "Limit", advice: "Advice | None") -> dict[str, Any]:
    return {
        "fits": advice is None,
        "peak": made.peak,
        "peak_phase": made.peak_phase,
        "phases": made.phases,
        "lines": [asdict(line) for line in made.lines],
        "weights": made.weights,
        "limit": asdict(limit),
        "constants": made.machine,
        "advice": None if advice is None else asdict(advice),
    }


def _print(made: "Plan", limit: "Limit", advice: "Advice | None") -> None:
    out.print(f"{made.weights:,} weights; measured constants: {made.machine}", soft_wrap=True)
    out.print(f"{'part':<26} {'GiB':>7}  {'setting':<20} in")
    for line in made.lines:
        where = _span(line.phases)
        out.print(f"{line.part:<26} {line.nbytes / GIB:>7.3f}  {line.knob:<20} {where}",
                  soft_wrap=True)  # fmt: skip
    out.print("")
    for phase, nbytes in made.phases.items():
        mark = "  <- the peak" if phase == made.peak_phase else ""
        out.print(f"{phase:<26} {nbytes / GIB:>7.3f}{mark}")
    out.print(f"{'limit':<26} {limit.nbytes / GIB:>7.3f}  {limit.source}", soft_wrap=True)
    if advice is None:
        out.print(f"It fits: {size(made.peak)} of {size(limit.nbytes)}.")
    else:
        _print_advice(made, limit, advice)


def _span(phases: tuple[str, ...]) -> str:
    return phases[0] if len(phases) == 1 else f"{phases[0]}..{phases[-1]}"


def _print_advice(made: "Plan", limit: "Limit", advice: "Advice") -> None:
    out.print(f"It does not fit: {size(made.peak - limit.nbytes)} are missing. In this order:")
    for change in advice.changes:
        out.print(f"  {change.setting} saves {size(change.saves)}; {change.price}", soft_wrap=True)
    if advice.short:
        out.print(f"Nothing fits: with all of that, {size(advice.short)} are still missing.")
    else:
        out.print(f"Then it fits: {size(advice.changes[-1].peak)} of {size(limit.nbytes)}.")
