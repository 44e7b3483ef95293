"""What the pictures share: their colours, their axes, and the real layer they look at.

The paper is light in every theme: an SVG in a page cannot know which one the reader chose.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from fourge.model.embedded import EMBEDDED
from fourge.model.source import open_source

INK, FAINT, PAPER = "#24292f", "#8b949e", "#ffffff"
BLUE, ORANGE, GREEN, RED = "#2f6f9f", "#d9822b", "#2a8f5c", "#c8553d"
LAYER = "model.layers.15.self_attn.q_proj.weight"


@cache
def real_weight() -> Tensor:
    """The weight of that layer of the embedded model, in float32."""
    return open_source(EMBEDDED).tensors[LAYER].dense().to(torch.float32)


def plain(axes: Any, title: str, x: str = "", y: str = "") -> None:
    """Axes that stay out of the way."""
    axes.figure.set_facecolor(PAPER)
    axes.set_title(title, fontsize=10.5, color=INK, loc="left")
    axes.set_xlabel(x, fontsize=9.5, color=INK)
    axes.set_ylabel(y, fontsize=9.5, color=INK)
    axes.tick_params(labelsize=8.5, colors=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)


def legend(axes: Any, **where: Any) -> None:
    axes.legend(fontsize=8.5, frameon=False, labelcolor=INK, **where)
