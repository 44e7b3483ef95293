"""Stochastic rounding to NVFP4: the stored value is right on average.

An element between two levels goes up with the odds that make its mean exact:

    P(up) = (|x| / unit - lower) / step,     E[decoded] = x

That holds only if nothing saturates. ``e4m3(amax / 6)`` rounds down in about half of the blocks,
whose largest values would then be clipped to 6 (0.3 % of the norm of a Gaussian is lost). So the
block's maximum is taken 17/16 larger than it is: half a step of E4M3, hence the scale never
rounds below the true one; where E4M3 is subnormal and its steps are coarser, one step is added.

The random numbers are a pure function of key and element index (``core.rng``): chunks, threads
and shards change no bit. Four over six is not used here: choosing the better of two roundings
is a bias.

Shapes: N blocks of K = 16 values.
"""

import torch
from torch import Tensor

from fourge.core import rng
from fourge.nvfp4 import blocks
from fourge.nvfp4.blocks import BLOCK, E2M1_MAX, E4M3_MAX, E4M3_TINY
from fourge.nvfp4.matrix import Kernel, Nvfp4Matrix, as_blocks, chunks, from_blocks, runner
from fourge.nvfp4.recipe import power_of_two_at_least

HEADROOM = 17.0 / 16.0


def quantize_stochastic(
    weight_RC: Tensor,
    key: rng.Key,
    *,
    tensor_scale: Tensor | None = None,
    first_element: int = 0,
    kernel: Kernel = "compiled",
) -> Nvfp4Matrix:
    """Quantise so that the expectation of the decoded weight is the weight.

    ``first_element`` is the index of ``weight_RC[0, 0]`` in the whole tensor, when this is a
    chunk or shard of it; ``tensor_scale`` must then be that of the whole.

    Raises:
        FormatError: the columns do not divide into blocks of 16, or a value is not finite.
    """
    run = runner(kernel)
    value_NK, amax_N = as_blocks(weight_RC, run)
    scale = unbiased_tensor_scale(amax_N.amax()) if tensor_scale is None else tensor_scale
    words = key.words(scale.device)
    packed_NH = torch.empty(len(value_NK), BLOCK // 2, dtype=torch.uint8, device=scale.device)
    block_scale_N = torch.empty(len(value_NK), dtype=torch.float8_e4m3fn, device=scale.device)
    for part in chunks(len(value_NK)):
        chosen_N = run(_unclipped_scale)(amax_N[part], scale)
        first = torch.tensor(first_element + part.start * BLOCK, device=scale.device)
        codes_NK = run(stochastic_codes)(value_NK[part], chosen_N, scale, words, first)
        packed_NH[part] = run(blocks.pack)(codes_NK)
        block_scale_N[part] = chosen_N.to(torch.float8_e4m3fn)
    return from_blocks(weight_RC, packed_NH, block_scale_N, scale)


def unbiased_tensor_scale(amax: Tensor) -> Tensor:
    """A power of two that leaves room for the headroom, from the largest magnitude."""
    largest = amax.float()
    fitted = power_of_two_at_least(largest * HEADROOM / (E2M1_MAX * E4M3_MAX))
    return torch.where(largest > 0, fitted, 1.0)


def _unclipped_scale(amax_N: Tensor, tensor_scale: Tensor) -> Tensor:
    wanted_N = amax_N.float() * (1.0 / tensor_scale * (1.0 / 6.0))
    scale_N = blocks.round_e4m3((wanted_N * HEADROOM).clamp(max=E4M3_MAX)).clamp(min=E4M3_TINY)
    short = scale_N < wanted_N  # only where E4M3 is subnormal: its step there is 2**-9
    return torch.where(short, (scale_N + E4M3_TINY).clamp(max=E4M3_MAX), scale_N)


def stochastic_codes(
    value_NK: Tensor, block_scale_N: Tensor, tensor_scale: Tensor, words: Tensor, first: Tensor
) -> Tensor:
    """E2M1 codes of values under given scales, right on average below 6 units."""
    signed_NK = value_NK.float()
    ratio_NK = signed_NK.abs() / (block_scale_N * tensor_scale).unsqueeze(-1)
    ratio_NK = ratio_NK.clamp(max=E2M1_MAX)
    step_NK = torch.where(ratio_NK >= 4, 2.0, torch.where(ratio_NK >= 2, 1.0, 0.5))
    lower_NK = torch.floor(ratio_NK / step_NK) * step_NK
    index = torch.arange(value_NK.numel(), device=value_NK.device).view(value_NK.shape) + first
    chance_NK = rng.uniform(rng.element_bits(words, index))
    up_NK = chance_NK * step_NK < ratio_NK - lower_NK
    return blocks.code_of(torch.where(up_NK, lower_NK + step_NK, lower_NK), signed_NK)
