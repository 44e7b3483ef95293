"""``fourge step``: one full-parameter step, and what every phase of it costs."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fourge.cli.options import (
    MODEL_OR_SHAPE,
    device_option,
    master_option,
    moments_option,
    recompute_option,
    release_option,
)
from fourge.cli.screen import calm_libraries, out
from fourge.core.units import size

if TYPE_CHECKING:
    from fourge.harness.one_step import Phase

PHASES = ("start", "model_loaded", "batch_ready", "forward_done", "backward_done", "step_done",
          "cleanup")  # fmt: skip


@click.command(epilog="Exit status: 0 done, 2 wrong input, 3 the loss or a gradient is not finite.")
@click.option("--model", required=True, type=MODEL_OR_SHAPE, metavar="SHAPE|PATH",
              help="A model, or a shape: qwen3-0.6b, 1.7b, 4b, 8b, 14b, 32b.")  # fmt: skip
@click.option("--random-weights", is_flag=True, help="Noise instead of the model's weights.")
@click.option("--tokens", default=64, show_default=True, help="Tokens per sequence.")
@click.option("--batch", default=1, show_default=True, help="Sequences.")
@click.option("--steps", default=1, show_default=True, help="Steps; the first one compiles.")
@master_option
@moments_option
@click.option("--scheme", default="w4a16", show_default=True, type=click.Choice(("w4a16", "none")),
              help="NVFP4 weights in forward, or none.")  # fmt: skip
@click.option("--loss", default="ce", show_default=True, type=click.Choice(("ce", "hidden-l1")),
              help="Cross entropy, or the mean size of the last hidden state.")  # fmt: skip
@click.option("--compute-dtype", default="auto", show_default=True,
              type=click.Choice(("auto", "float32", "bfloat16")),
              help="auto: bfloat16, or float32 on a CPU without products of it.")  # fmt: skip
@device_option
@click.option("--lr", default=1e-5, show_default=True, help="Learning rate.")
@release_option
@recompute_option
@click.option("--chunk-rows", type=click.IntRange(1), help="Rows updated at once.")
@click.option("--stop-after", type=click.Choice(PHASES), default="cleanup", show_default=True,
              metavar="PHASE", help=f"One of {', '.join(PHASES)}.")  # fmt: skip
@click.option("--tensor-bytes", is_flag=True, help="List every tensor with its resident forms.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path),
              help="Write the report to this file.")  # fmt: skip
def step(
    json_file: Path | None, tensor_bytes: bool, stop_after: str, no_release: bool,
    compute_dtype: str, **settings: Any,
) -> None:  # fmt: skip
    """Run one full-parameter training step and report memory and time, phase by phase.

    Peak is the most this process held in RAM since the phase before.
    """
    calm_libraries()
    from fourge.core.files import whole_file
    from fourge.harness.one_step import OneStep, Phase, StepSettings

    chosen = StepSettings(**settings, compute=compute_dtype, release=not no_release)
    one, phases, trained, forms = OneStep(chosen), [], None, []
    out.print(f"{'phase':<14} {'seconds':>8} {'resident':>10} {'peak':>10} {'device':>10} "
              f"{'available':>10}")  # fmt: skip
    for report in one.run(stop_after):
        if isinstance(report, Phase):
            phases.append(asdict(report))
            out.print(_row(report))
        else:
            trained = asdict(report)
            out.print(f"  trains {report.elements:,} elements in {report.tensors} tensors")
        if tensor_bytes and isinstance(report, Phase) and report.name == _last(stop_after):
            forms = [asdict(each) for each in one.tensor_forms()]
    peak = max(phase["peak"] for phase in phases)
    out.print(f"peak {size(peak)} of process memory")
    if forms:
        _print_forms(forms)
    if json_file:
        content = {"settings": asdict(chosen), "trained": trained, "phases": phases,
                   "peak": peak, "tensors": forms}  # fmt: skip
        with whole_file(json_file, overwrite=True) as temporary:
            temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")


def _last(stop_after: str) -> str:
    """The last phase in which there are tensors; none, if it ends before they are loaded."""
    return {"cleanup": "step_done", "start": ""}.get(stop_after, stop_after)


def _row(phase: "Phase") -> str:
    return (
        f"{phase.name:<14} {phase.seconds:>8.1f} {size(phase.resident):>10} "
        f"{size(phase.peak):>10} {size(phase.device):>10} {size(phase.available):>10}"
    )


def _print_forms(forms: list[dict[str, Any]]) -> None:
    out.print(f"{'master':>10} {'codes':>10} {'gradient':>10} {'optimizer':>10}  tensor")
    for form in forms:
        numbers = " ".join(
            f"{size(form[k]):>10}" for k in ("master", "codes", "gradient", "optimizer")
        )
        shape = " x ".join(map(str, form["shape"]))
        out.print(f"{numbers}  {form['name']} ({shape})", soft_wrap=True)
