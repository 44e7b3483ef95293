"""Stochastic rounding: how much of what an optimizer asks for arrives in the weights.

Every gradient has the same sign at every step, so Adam asks for a step of exactly ``lr`` each
time, and what should have moved is known.
"""

from typing import Any

import torch
from torch import Tensor, nn

from fourge.nvfp4.matrix import dequantize, quantize
from fourge.nvfp4.packed import ROOM, PackedWeight
from fourge.optim.adamw import AdamW
from fourge.optim.masters import MasterFormat, join
from tests.docs.pictures import paper

STEPS = 40
RATES = (1e-6, 1e-5, 1e-4, 1e-3)
COUNT = 63 * 256  # weights; from 64 blocks of 256 on a kernel would be compiled for this


def arrived(optimizer: torch.optim.Optimizer, weight: nn.Parameter, lr: float) -> list[float]:
    """The mean movement after each step, in units of ``lr``; asked for is 1, 2, 3, ..."""
    before, sign = _value(weight, {}), _signs(tuple(weight.shape))
    moved = []
    for _ in range(STEPS):
        weight.grad = sign.to(torch.bfloat16)
        optimizer.step()
        moved.append(
            float(((before - _value(weight, optimizer.state[weight])) * sign).double().mean()) / lr
        )
    return moved


def nearest(lr: float) -> list[float]:
    """torch's AdamW on a bf16 weight, which rounds to nearest."""
    weight = nn.Parameter(_start().bfloat16())
    return arrived(torch.optim.AdamW([weight], lr=lr, weight_decay=0.0), weight, lr)


def ours(master: MasterFormat, lr: float) -> list[float]:
    """fourge's AdamW, on a master of this form."""
    start = _start()
    weight = nn.Parameter(start.bfloat16())
    if master == "nvfp4":
        own = quantize(start, kernel="reference").tensor_scale
        weight = PackedWeight(quantize(start, tensor_scale=own * ROOM, kernel="reference"))
    return arrived(AdamW([("w", weight)], lr=lr, master=master, moments="fp32"), weight, lr)


def _start() -> Tensor:
    return paper.real_weight().flatten()[:COUNT].view(-1, 256)


def _signs(shape: tuple[int, ...]) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.where(torch.rand(shape, generator=generator) < 0.5, -1.0, 1.0)


def _value(weight: nn.Parameter, state: dict[str, Any]) -> Tensor:
    if isinstance(weight, PackedWeight):
        return dequantize(weight.matrix, kernel="reference")
    value = weight.detach().float()
    return join(value, state["residual"]) if "residual" in state else value.clone()


def draw(figure: Any) -> None:
    steps, rates = figure.subplots(1, 2, width_ratios=(1.15, 1))
    _draw_steps(steps)
    _draw_rates(rates)


def _draw_steps(axes: Any) -> None:
    lr, asked = 1e-5, range(1, STEPS + 1)
    axes.plot(asked, asked, color=paper.INK, linewidth=4, alpha=0.15, label="asked for")
    axes.plot(asked, ours("bf16+8", lr), color=paper.GREEN, label="bf16+8")
    axes.plot(asked, ours("bf16", lr), color=paper.BLUE, label="bf16, stochastic")
    axes.plot(asked, ours("nvfp4", lr), color=paper.ORANGE, label="nvfp4, stochastic")
    axes.plot(asked, nearest(lr), color=paper.RED, label="bf16, to nearest")
    paper.plain(axes, "Real weights, lr 1e-5", "steps", "mean movement, in steps of lr")
    paper.legend(axes, loc="upper left")


def _draw_rates(axes: Any) -> None:
    for name, run, colour in (
        ("stochastic", lambda lr: ours("bf16", lr), paper.BLUE),
        ("to nearest", nearest, paper.RED),
    ):
        shares = [run(lr)[-1] / STEPS * 100 for lr in RATES]
        axes.plot(RATES, shares, "o-", markersize=4, color=colour, label=name)
    axes.set_xscale("log")
    axes.set_ylim(-4, 124)
    paper.plain(axes, f"bf16 masters, after {STEPS} steps", "learning rate", "arrived, %")
    paper.legend(axes, loc="center left")
