"""Packed moments: what the codes of v decode to, and what that does to an update.

The moments are those of a real layer after a few real texts. ``linear`` is the obvious way to
store them, an even grid from zero to the block's largest value, which we do not use.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fourge.model.build import load_model
from fourge.model.calibration import TEXTS
from fourge.model.embedded import EMBEDDED
from fourge.model.source import open_source
from fourge.optim.moments import (
    decode_ratio,
    decode_v,
    encode_ratio,
    encode_v,
    reach_of,
)
from tests.docs.pictures import paper

BETAS = (0.9, 0.95)
BLOCK = 192  # a divisor of the layer's 576 columns
TOP_V, TOP_M = 255, 127


class Moments(NamedTuple):
    """Adam's averages, in blocks."""

    m_NK: Tensor
    v_NK: Tensor

    def update(self) -> Tensor:
        """What the weight would move by, in units of the learning rate, before the last scale."""
        return self.m_NK / (self.v_NK.sqrt() + 1e-8)


def real_moments(texts: int = 6) -> Moments:
    """Of one layer of the embedded model, after its gradients on some texts."""
    source = open_source(EMBEDDED)
    model, tokenizer = load_model(source), source.tokenizer()
    model.requires_grad_(False)
    weight = model.get_parameter(paper.LAYER).requires_grad_(True)
    m_RC, v_RC = torch.zeros_like(weight), torch.zeros_like(weight)
    for text in TEXTS[:texts]:
        tokens_BT = tokenizer(text, return_tensors="pt")["input_ids"][:, :64]
        (grad_RC,) = torch.autograd.grad(model(tokens_BT, labels=tokens_BT).loss, weight)
        m_RC = BETAS[0] * m_RC + (1 - BETAS[0]) * grad_RC
        v_RC = BETAS[1] * v_RC + (1 - BETAS[1]) * grad_RC.square()
    return Moments(m_RC.view(-1, BLOCK), v_RC.view(-1, BLOCK))


def packed(true: Moments) -> Moments:
    """The moments after a trip through fourge's 8 bits."""
    noise_NK = torch.rand(true.v_NK.shape, generator=torch.Generator().manual_seed(0))
    code_NK, low_N, step_N = encode_v(true.v_NK, noise_NK, TOP_V)
    v_NK = decode_v(code_NK, low_N, step_N)
    unit = reach_of(*BETAS) / TOP_M**2
    ratio_NK = true.m_NK / true.v_NK.sqrt()
    size_NK = encode_ratio(ratio_NK.abs() / unit, noise_NK, TOP_M)
    signed_NK = torch.copysign(size_NK, ratio_NK)
    return Moments(decode_ratio(signed_NK, torch.tensor(unit)) * v_NK.sqrt(), v_NK)


def linear(true: Moments) -> Moments:
    """The same through two even grids."""
    return Moments(_even(true.m_NK, TOP_M), _even(true.v_NK, TOP_V))


def _even(value_NK: Tensor, top: int) -> Tensor:
    unit_N1 = value_NK.abs().amax(1, keepdim=True) / top
    return (value_NK / unit_N1).round() * unit_N1


def draw(figure: Any) -> None:
    true = real_moments()
    codes, updates = figure.subplots(1, 2)
    _draw_codes(codes, true)
    _draw_updates(updates, true)


def _draw_codes(axes: Any, true: Moments) -> None:
    spread_N = true.v_NK.amax(1) / true.v_NK.amin(1)
    v_1K = true.v_NK[spread_N.argsort()[len(spread_N) // 2]].unsqueeze(0)  # a usual block
    _, low_1, step_1 = encode_v(v_1K, torch.zeros_like(v_1K), TOP_V)
    code = torch.arange(1, TOP_V + 1)
    even = code / TOP_V * v_1K.amax()
    axes.plot(code, decode_v(code.unsqueeze(0), low_1, step_1)[0], color=paper.BLUE,
              label="stored as a logarithm")  # fmt: skip
    axes.plot(code, even, color=paper.RED, label="stored evenly")
    axes.axhspan(float(v_1K.amin()), float(even[0]) / 2, color=paper.RED, alpha=0.12, linewidth=0)
    below = float((v_1K < even[0] / 2).float().mean())
    lost = f"{below:.0%} of these v round to zero on the even grid"
    axes.text(128, float(v_1K.amin()) * 1.3, lost, fontsize=8.5, ha="center", color=paper.RED)
    axes.set_yscale("log")
    paper.plain(axes, "What a code of v stands for, in one block", "code (0 is zero)", "v")
    paper.legend(axes, loc="lower right", bbox_to_anchor=(1.0, 0.24))


def _draw_updates(axes: Any, true: Moments) -> None:
    wanted = true.update().flatten()
    some = torch.arange(0, len(wanted), 1801)
    for name, other, colour in (("stored evenly", linear(true), paper.RED),
                                ("log and ratio", packed(true), paper.BLUE)):  # fmt: skip
        got = other.update().flatten()
        axes.plot(wanted[some].abs(), got[some].abs().clamp(min=1e-3), "o", markersize=2.2,
                  alpha=0.6, color=colour, label=name)  # fmt: skip
    axes.plot([1e-2, 1], [1e-2, 1], color=paper.INK, linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(1e-2, 1.5)
    paper.plain(axes, "The update that is made of them", "exact, in units of lr",
                "after 8 bits")  # fmt: skip
    paper.legend(axes, loc="upper left", markerscale=3)
