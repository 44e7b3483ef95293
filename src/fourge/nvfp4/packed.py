"""A weight that exists as NVFP4 codes only: the 4-bit pack is the master.

To torch it is a parameter: it has a shape, a dtype and a gradient. It has no values; asking for
them gives one number repeated. ``matrix`` is the weight.

An update decodes some rows, adds to them, and rounds them back **stochastically**, so that a step
far below the distance of two codes moves one weight in a thousand by a whole code instead of none
by anything. For that to be the only noise, a value that was not touched must come back as it was,
so a block keeps its scale as long as it can:

* its largest value still fits: the scale stays, and values on the grid stay on the grid;
* it fell to half of what fits: the scale is halved, and every code of the old grid up to there
  is a code of the new one;
* it outgrew the scale: the scale itself is rounded stochastically to one of its two E4M3
  neighbours. On the lower one what lies above ``6 * low`` is clipped; on the upper one, chosen
  with odds p, it is put ``1 / p`` times as far above. On average nothing is lost.

The tensor scale never changes and leaves room for the weights to grow ``ROOM`` times.

Shapes: R rows, C columns, N blocks of K = 16 values.
"""

from typing import Any

import torch
from torch import Tensor, nn

from fourge.core import rng
from fourge.core.errors import DivergedError
from fourge.nvfp4 import blocks
from fourge.nvfp4.blocks import BLOCK, E2M1_MAX, E4M3_MAX, E4M3_TINY
from fourge.nvfp4.matrix import Kernel, Nvfp4Matrix, as_blocks, runner
from fourge.nvfp4.stochastic import stochastic_codes

ROOM = 8.0
_NORMAL = 2.0**-6  # the smallest E4M3 number with a full mantissa


class PackedWeight(nn.Parameter):
    """A parameter without memory, and the NVFP4 matrix that it stands for."""

    matrix: Nvfp4Matrix

    def __new__(
        cls, matrix: Nvfp4Matrix, dtype: torch.dtype = torch.bfloat16, requires_grad: bool = True
    ) -> "PackedWeight":
        shape_only = torch.zeros((), dtype=dtype, device=matrix.packed_RC.device)
        weight = torch.Tensor._make_subclass(cls, shape_only.expand(matrix.shape), requires_grad)
        weight.matrix = matrix
        return weight

    def __init__(
        self, matrix: Nvfp4Matrix, dtype: torch.dtype = torch.bfloat16, requires_grad: bool = True
    ) -> None:
        pass  # made by __new__

    def __reduce_ex__(self, protocol: Any) -> Any:
        return PackedWeight, (self.matrix, self.dtype, self.requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> "PackedWeight":
        parts = (self.matrix.packed_RC, self.matrix.block_scale_RB, self.matrix.tensor_scale)
        matrix = Nvfp4Matrix(*(part.clone() for part in parts))
        return PackedWeight(matrix, self.dtype, self.requires_grad)


@torch.no_grad()
def requantize_rows_(
    matrix: Nvfp4Matrix,
    rows: slice,
    value_RC: Tensor,
    key: rng.Key,
    *,
    name: str = "a weight",
    kernel: Kernel = "compiled",
) -> None:
    """Write float32 rows into the matrix, rounded so that their expectation is kept.

    Raises:
        DivergedError: a weight grew beyond what the tensor scale can express.
    """
    run = runner(kernel)
    value_NK, amax_N = as_blocks(value_RC, run, name)
    if not amax_N.amax() * (1 / E2M1_MAX) <= matrix.tensor_scale * E4M3_MAX:
        raise DivergedError(
            f"{name} has grown more than {ROOM:g} times since the start.",
            why="its NVFP4 tensor scale cannot express that, and no useful training does it",
            fix="begin again with a lower learning rate",
        )
    words = key.words(value_NK.device)
    first = torch.tensor((rows.start or 0) * value_RC.shape[1], device=value_NK.device)
    old_N = matrix.block_scale_RB[rows].reshape(-1).float()
    wanted_N = amax_N.float() / matrix.tensor_scale
    low_N, boost_N, scale_N = run(_next_scale)(wanted_N, old_N, words, first).unbind()
    fair_NK = run(_unclipped)(value_NK, low_N * matrix.tensor_scale, boost_N)
    code_NK = run(stochastic_codes)(fair_NK, scale_N, matrix.tensor_scale, words, first)
    matrix.packed_RC[rows] = run(blocks.pack)(code_NK).view(-1, value_RC.shape[1] // 2)
    stored_RB = scale_N.to(torch.float8_e4m3fn).view(-1, value_RC.shape[1] // BLOCK)
    matrix.block_scale_RB[rows] = stored_RB


def _next_scale(wanted_N: Tensor, old_N: Tensor, words: Tensor, first: Tensor) -> Tensor:
    """Three rows: the scale nothing is clipped up to, the push for what is above, the scale.

    ``wanted`` is the block's largest magnitude over the tensor scale.
    """
    needed_N = wanted_N * (1.0 / E2M1_MAX)
    grows_N = needed_N > old_N
    halves_N = (wanted_N <= 3.0 * old_N) & (old_N >= 2.0 * _NORMAL)
    low_N = _e4m3_below(needed_N)
    step_N = _e4m3_step(low_N)
    odds_N = (needed_N - low_N) / step_N
    index_N = torch.arange(len(wanted_N), device=wanted_N.device) * BLOCK + first
    # Another stream than that of the codes: the words are swapped.
    chance_N = rng.uniform(rng.element_bits(words.flip(0), index_N))
    up_N = grows_N & (chance_N < odds_N) & (low_N < E4M3_MAX)
    kept_N = torch.where(grows_N, low_N, torch.where(halves_N, old_N * 0.5, old_N))
    boost_N = torch.where(up_N, 1.0 / odds_N.clamp(min=2.0**-24), 0.0)
    return torch.stack([kept_N, boost_N, torch.where(up_N, low_N + step_N, kept_N)])


def _e4m3_below(value_N: Tensor) -> Tensor:
    """The largest E4M3 number, but at least the smallest positive one, that is not larger."""
    normal_N = (value_N.view(torch.int32) & -0x100000).view(torch.float32)
    subnormal_N = (value_N * 2.0**9).floor() * E4M3_TINY
    return torch.where(value_N >= _NORMAL, normal_N, subnormal_N).clamp(E4M3_TINY, E4M3_MAX)


def _e4m3_step(value_N: Tensor) -> Tensor:
    """The distance from an E4M3 number to the next one up."""
    power_N = (value_N.view(torch.int32) & 0x7F800000).view(torch.float32)
    return power_N.clamp(min=_NORMAL) * 0.125


def _unclipped(value_NK: Tensor, low_N: Tensor, boost_N: Tensor) -> Tensor:
    """The values, with what the lower scale would clip moved so that the mean stays."""
    limit_N1 = (low_N * E2M1_MAX).unsqueeze(-1)
    size_NK = value_NK.abs()
    above_NK = (size_NK - limit_N1).clamp(min=0.0)
    fair_NK = torch.minimum(size_NK, limit_N1) + above_NK * boost_N.unsqueeze(-1)
    return torch.copysign(fair_NK, value_NK)  # a zero keeps its sign, hence its code
