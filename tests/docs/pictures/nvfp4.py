"""NVFP4: sixteen real weights on their grid, and how large the error of a block is."""

from typing import Any

import torch
from torch import Tensor

from fourge.nvfp4 import blocks
from fourge.nvfp4.blocks import BLOCK, E2M1_LEVELS
from fourge.nvfp4.matrix import dequantize, quantize
from fourge.nvfp4.recipe import FOURGE, TE, Recipe
from tests.docs.pictures import paper

ROW = 0  # of the layer; its first sixteen columns are the block that is shown


def one_scale(weight_RC: Tensor) -> Tensor:
    """What is left of a weight whose E2M1 values share a single scale."""
    unit = weight_RC.abs().amax() / blocks.E2M1_MAX
    return blocks.decode(blocks.encode(weight_RC / unit)) * unit


def decoded(weight_RC: Tensor) -> dict[str, Tensor]:
    """The weight after a trip through 4 bits, in three ways."""
    return {
        "one scale": one_scale(weight_RC),
        "a scale per 16": _through(weight_RC, TE),
        "four over six": _through(weight_RC, FOURGE),
    }


def _through(weight_RC: Tensor, recipe: Recipe) -> Tensor:
    return dequantize(quantize(weight_RC, recipe=recipe, kernel="reference"), kernel="reference")


def relative(weight_RC: Tensor, other_RC: Tensor) -> float:
    """Root mean square error over root mean square."""
    return float((other_RC - weight_RC).norm() / weight_RC.norm())


def block_errors(weight_RC: Tensor, other_RC: Tensor) -> Tensor:
    """The same of every block of sixteen by itself."""
    value_NK, other_NK = weight_RC.view(-1, BLOCK), other_RC.view(-1, BLOCK)
    error_N: Tensor = (other_NK - value_NK).norm(dim=1)
    size_N: Tensor = value_NK.norm(dim=1)
    return error_N / size_N


def draw(figure: Any) -> None:
    weight_RC = paper.real_weight()
    block, errors = figure.subplots(1, 2, width_ratios=(1.25, 1))
    _draw_block(block, weight_RC)
    _draw_errors(errors, weight_RC)


def _draw_block(axes: Any, weight_RC: Tensor) -> None:
    matrix = quantize(weight_RC, kernel="reference")
    unit = float(matrix.block_scale_RB[ROW, 0].float() * matrix.tensor_scale)
    for level in {sign * level for level in E2M1_LEVELS for sign in (1, -1)}:
        axes.axhline(level * unit, color=paper.FAINT, linewidth=0.6, zorder=0)
        axes.annotate(f"{level:g}", (1.01, level * unit), xycoords=("axes fraction", "data"),
                      fontsize=7.5, va="center", color=paper.INK)  # fmt: skip
    value_K = weight_RC[ROW, :BLOCK]
    stored_K = dequantize(matrix, kernel="reference")[ROW, :BLOCK]
    place = range(BLOCK)
    axes.vlines(place, value_K, stored_K, color=paper.RED, linewidth=1.5)
    axes.plot(place, value_K, "o", markersize=4.5, color=paper.BLUE, label="weight")
    axes.plot(place, stored_K, "s", markersize=4.5, color=paper.ORANGE, label="stored")
    paper.plain(axes, "16 neighbours and the 15 levels they share", "column", "value")
    axes.set_xticks(range(0, BLOCK, 5))
    paper.legend(axes, loc="upper left", bbox_to_anchor=(0.0, -0.12), ncols=2)


def _draw_errors(axes: Any, weight_RC: Tensor) -> None:
    colours = (paper.FAINT, paper.ORANGE, paper.BLUE)
    for (name, other_RC), colour in zip(decoded(weight_RC).items(), colours, strict=True):
        share = torch.histc(block_errors(weight_RC, other_RC), bins=60, min=0.0, max=0.6)
        centre = torch.linspace(0.0, 60.0, 61)[:-1] + 0.5
        whole = relative(weight_RC, other_RC)
        axes.fill_between(centre, share / share.sum() * 100, step="mid", color=colour, alpha=0.35)
        axes.step(centre, share / share.sum() * 100, where="mid", color=colour,
                  label=f"{name}: {whole:.1%} overall")  # fmt: skip
    paper.plain(axes, "How far off a block is", "error of a block, %", "share of the blocks, %")
    axes.set_xlim(0, 60)
    paper.legend(axes, loc="upper right")
