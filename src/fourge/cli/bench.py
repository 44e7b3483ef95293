"""``fourge bench``: measure against peers."""

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fourge.cli.options import COUNT
from fourge.cli.screen import calm_libraries, echo_json, err, json_option, others_silent, out
from fourge.core.units import size

if TYPE_CHECKING:
    from fourge.bench.quality import SchemeOrNone

_STATUS = "Exit status: 0 measured, 2 wrong input."


@click.group()
def bench() -> None:
    """Measure against peers: ratios in one run, medians of interleaved repeats."""


@bench.command(short_help="The number format: quantise, decode, load and export.", epilog=_STATUS)
@click.option("--repeats", default=15, show_default=True, type=COUNT,
              help="Rounds; the median counts.")  # fmt: skip
@click.option("--no-load", is_flag=True, help="Leave out the load-quantise-export part (minutes).")
@json_option
def nvfp4(repeats: int, no_load: bool, as_json: bool) -> None:
    """Quantise and decode 16.8 million values; load, quantise and export a model.

    Each line is a time, and how many times as fast it is as the first line of its part.
    """
    calm_libraries()
    from fourge.bench.nvfp4 import measure

    results = []
    for part in measure(repeats, load=not no_load):
        results.append(part)
        if not as_json:
            out.print(part.table())
    if as_json:
        echo_json([part.as_dict() for part in results])


@bench.command(short_help="The optimizer: against torch, bitsandbytes and torchao.", epilog=_STATUS)
@click.option("--repeats", default=9, show_default=True, type=COUNT,
              help="Rounds; the median counts.")  # fmt: skip
@json_option
def optim(repeats: int, as_json: bool) -> None:
    """Update 56.6 million bf16 weights: against torch, bitsandbytes and torchao."""
    calm_libraries()
    from fourge.bench.optim import measure

    with others_silent():
        measured = measure(repeats)
    if as_json:
        echo_json(measured.as_dict())
    else:
        out.print(measured.table())


@bench.command(short_help="A training step: against plain transformers.", epilog=_STATUS)
@click.option("--repeats", default=5, show_default=True, type=COUNT,
              help="Steps; the median counts.")  # fmt: skip
@click.option("--batch", default=8, show_default=True, type=COUNT, help="Sequences.")
@click.option("--tokens", default=96, show_default=True, type=COUNT, help="Tokens per sequence.")
@json_option
def step(repeats: int, batch: int, tokens: int, as_json: bool) -> None:
    """A whole training step of the embedded model: against plain transformers.

    Time, and peak memory above what the process held before it loaded the model.
    """
    calm_libraries()
    from fourge.bench.step import measure

    sides = measure(repeats, batch, tokens)
    if as_json:
        echo_json([asdict(side) for side in sides])
        return
    out.print(f"The embedded model, {batch} sequences of {tokens} tokens")
    for side in sides:
        out.print(side.row(sides[0]))


@bench.command(short_help="The memory plan: against 14 real runs.", epilog=_STATUS)
@json_option
def plan(as_json: bool) -> None:
    """The memory plan against real runs: 14 configurations, one after the other.

    Planned with defaults and with this machine's calibration, and measured; up to 9 GiB
    and about 20 minutes.
    """
    calm_libraries()
    from fourge.bench.plan import compare

    rows = []
    if not as_json:
        out.print(f"{'':46} {'defaults':>9} {'':>6} {'calibr.':>9} {'':>6} {'measured':>9}",
                  soft_wrap=True)  # fmt: skip
    for row in compare():
        rows.append(row)
        if not as_json:
            out.print(row.row(), soft_wrap=True)
    if as_json:
        echo_json([asdict(row) for row in rows])


@bench.command(short_help="Several processes: memory and bytes, against the plan.", epilog=_STATUS)
@click.option("--model", default="qwen3-0.6b", show_default=True, help="A shape.")
@click.option("--processes", "sizes", multiple=True, type=int, default=(1, 2, 4),
              show_default=True, help="How many; may be repeated.")  # fmt: skip
@click.option("--batch", default=4, show_default=True, type=COUNT,
              help="Sequences, of all processes.")  # fmt: skip
@click.option("--tokens", default=64, show_default=True, type=COUNT, help="Tokens per sequence.")
@json_option
def shard(model: str, sizes: tuple[int, ...], batch: int, tokens: int, as_json: bool) -> None:
    """A step on several processes of this machine: memory and bytes, against the plan.

    Each line is one rank; the weights are random. Up to 12 GiB with the 0.6B shape.
    """
    calm_libraries()
    from fourge.bench.shard import HEADER, compare

    rows = []
    if not as_json:
        out.print(HEADER)
    for row in compare(model, sizes, batch, tokens):
        rows.append(row)
        if not as_json:
            out.print(row.text(), soft_wrap=True)
    if as_json:
        echo_json([asdict(row) for row in rows])


@bench.command(short_help="Replies: against transformers and llama.cpp.", epilog=_STATUS)
@click.option("--repeats", default=5, show_default=True, type=COUNT,
              help="Rounds; the median counts.")  # fmt: skip
@json_option
def decode(repeats: int, as_json: bool) -> None:
    """Replies of the embedded model: against transformers and llama.cpp.

    Tokens per second and the memory of the weights; many prompts at once; what the third
    turn of a chat costs. A few minutes.
    """
    calm_libraries()
    from fourge.bench.decode import measure

    with others_silent():
        measured = measure(repeats)
    if as_json:
        ratios = {"batch": measured.batch_over_alone, "turn_cost": measured.turn_cost}
        echo_json({**asdict(measured), **ratios})
        return
    for line in measured.lines():
        out.print(line, soft_wrap=True)


@bench.command(short_help="Learning: packed optimizers against exact ones.", epilog=_STATUS)
@click.option("--steps", default=100, show_default=True, type=COUNT, help="Of each run.")
@click.option("--seeds", default=3, show_default=True, type=COUNT, help="Runs of each kind.")
@click.option("--lr", default=2e-5, show_default=True, help="Learning rate.")
@click.option("--scheme", default="none", show_default=True, type=click.Choice(("none", "w4a16")),
              help="NVFP4 weights in forward, or none.")  # fmt: skip
@click.option("--batch", default=2, show_default=True, type=COUNT, help="Sequences per step.")
@click.option("--tokens", default=64, show_default=True, type=COUNT, help="Tokens per sequence.")
@json_option
def quality(
    steps: int, seeds: int, lr: float, scheme: "SchemeOrNone", batch: int, tokens: int,
    as_json: bool,
) -> None:  # fmt: skip
    """Train on real text with exact and with packed optimizers: does the loss differ?

    Each number is the mean loss of a tenth of the steps; then how far it is from fp32 +
    fp32. About 20 minutes.
    """
    calm_libraries()
    from fourge.bench.quality import gaps, measure

    curves = []
    for curve in measure(steps, seeds, scheme=scheme, lr=lr, batch=batch, length=tokens):
        curves.append(curve)
        if not as_json:
            numbers = " ".join(f"{loss:.3f}" for loss in curve.tenths())
            out.print(
                f"{curve.master}+{curve.moments} seed {curve.seed}: {numbers}", soft_wrap=True
            )
    found = gaps(curves)
    if as_json:
        echo_json({"curves": [asdict(curve) for curve in curves], "gaps": found})
        return
    for name, rows in found.items():
        worst = max(abs(gap) for row in rows for gap in row)
        last = sum(row[-1] for row in rows) / len(rows)
        out.print(f"{name}: at most {worst:.2%} from fp32 + fp32; the last tenth {last:+.2%}")


@bench.command(short_help="How far past its line a job gets before it is stopped.", epilog=_STATUS)
@click.option("--runs", default=25, show_default=True, type=COUNT,
              help="Fills of each of four kinds.")  # fmt: skip
@click.option("--minutes", default=1.0, show_default=True, help="Minutes of a job that breathes.")
@click.option("--asked", default=20, show_default=True, help="Training runs asked to leave.")
@json_option
def guard(runs: int, minutes: float, asked: int, as_json: bool) -> None:
    """Run jobs into the guard's line as fast as they can: how far past it do they get?

    Needs 6 GiB of memory that is available. Where others use the machine, run it in a cgroup
    with a limit.
    """
    from fourge.bench import guard as measure

    fast, steady, left = [], [], []
    for run in measure.fast(runs):
        fast.append(run)
        err.print(f"{run.name}: past the line by {size(run.past)}", soft_wrap=True)
    for job in measure.steady(minutes):
        steady.append(job)
    if asked:
        calm_libraries()
        from fourge.bench.guard_asked import asked as asked_runs

        with tempfile.TemporaryDirectory() as folder:
            for each in asked_runs(asked, Path(folder)):
                left.append(each)
                err.print(f"asked after step {each.after}: status {each.status}, same {each.same}")
    if as_json:
        parts: dict[str, list[Any]] = {"fast": fast, "steady": steady, "asked": left}
        echo_json({name: [asdict(each) for each in part] for name, part in parts.items()})
        return
    for line in (*measure.table(fast), *(job.row() for job in steady)):
        out.print(line)
    good = sum(each.good for each in left)
    out.print(f"asked to leave: {good} of {len(left)} saved and, resumed, ended in the same bits")
