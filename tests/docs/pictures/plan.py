"""The plan: what each phase of a run holds, for three ways to store the same model."""

from typing import Any

from fourge.harness.planning import wanted_of_model
from fourge.memory.plan import PHASES, Plan, plan
from tests.docs.pictures import paper

MODEL, TOKENS = "qwen3-4b", 512
WAYS: dict[str, dict[str, Any]] = {
    "float32, gradients kept": {"master": "fp32", "moments": "fp32", "release": False},
    "the default: bf16 + int8": {"master": "bf16", "moments": "int8"},
    "nvfp4 + nvfp4": {"master": "nvfp4", "moments": "nvfp4"},
}
PARTS = {
    "weights": ("master weights", "master residual", "weights as loaded"),
    "NVFP4 codes": ("NVFP4 codes", "decoded weight, one layer"),
    "moments": ("moments",),
    "gradients": ("gradients", "largest gradient"),
    "activations, logits": (
        "activations kept", "chunk of logits", "working memory, forward", "working memory, head",
        "working memory, backward", "optimizer scratch",
    ),
}  # fmt: skip
REST = "libraries, heap"
COLOURS = (paper.BLUE, "#7fb2d6", paper.ORANGE, paper.RED, paper.GREEN, paper.FAINT)
GIB = float(1 << 30)


def planned(way: str) -> Plan:
    """Without a machine's own constants: the same everywhere."""
    settings = {"tokens": TOKENS, **WAYS[way]}
    return plan(wanted_of_model(MODEL, device="cpu", **settings))


def stacked(made: Plan) -> dict[str, list[float]]:
    """GiB of each part in each phase; a phase sums to what the plan says of it."""
    part_of = {line: part for part, lines in PARTS.items() for line in lines}
    heights = {part: [0.0] * len(PHASES) for part in (*PARTS, REST)}
    for line in made.lines:
        for at, phase in enumerate(PHASES):
            if phase in line.phases:
                heights[part_of.get(line.part, REST)][at] += line.nbytes / GIB
    return heights


def draw(figure: Any) -> None:
    all_axes = figure.subplots(1, len(WAYS), sharey=True)
    for axes, way in zip(all_axes, WAYS, strict=True):
        made = planned(way)
        _draw_bars(axes, stacked(made))
        axes.plot(made.peak_phase, made.peak / GIB + 2, "v", markersize=6, color=paper.INK)
        paper.plain(axes, f"{way}\npeak {made.peak / GIB:.1f} GiB, in {made.peak_phase}")
        axes.tick_params(axis="x", rotation=50)
    all_axes[0].set_ylabel("GiB", fontsize=9.5, color=paper.INK)
    handles, labels = all_axes[0].get_legend_handles_labels()
    figure.legend(
        handles[::-1], labels[::-1], fontsize=8.5, frameon=False, loc="outside right upper"
    )


def _draw_bars(axes: Any, heights: dict[str, list[float]]) -> None:
    below = [0.0] * len(PHASES)
    for (part, height), colour in zip(heights.items(), COLOURS, strict=True):
        axes.bar(PHASES, height, bottom=below, color=colour, label=part, width=0.75)
        below = [low + more for low, more in zip(below, height, strict=True)]
