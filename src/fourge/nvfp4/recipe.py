"""How a weight's scales are chosen, and how a value is divided by them.

Two levels of scale stand behind every NVFP4 value:

    value = level * block_scale * tensor_scale
            E2M1    E4M3, 1 per 16  float32, 1 per matrix (or per group of matrices)

``tensor_scale`` MULTIPLIES when we decode. With S = 1 / tensor_scale, our arithmetic is that of
NVIDIA's Transformer Engine: ``block_scale = e4m3(min(amax_block * (S / 6), 448))``, one product,
and the code is that of ``x * (1 / (block_scale * tensor_scale))``. On top of it, ``FOURGE``:

* rounds the tensor scale up to a power of two. Then ``level * block_scale * tensor_scale`` has
  at most 6 significant bits: it is exact in float32 and in bf16, whether a reader multiplies by
  the scale or divides by its reciprocal, in any order. Every file format and every engine
  decodes to the same bits, and codes do not churn when the largest weight moves a little. It
  costs at most one of the 17 binades of E4M3 (measured: docs/why.md).
* chooses four over six: the block scale that maps the block's largest value to 6, or the one
  that maps it to 4 (where levels are denser), whichever has the smaller squared error. The
  bound 256 instead of 448 leaves room for that factor 1.5.
* never stores a block scale of zero: 2**-9 decodes a zero block just as well, and a block that
  is merely tiny keeps something.

The other recipes are what other tools do, bit for bit, for whoever wants their bytes.

A recipe works with the scale that its tool computes, called ``scale`` below: the multiplier, or
its reciprocal where ``divides`` is true. Going through the other would round once more.

``scale(amax)``                     float32, 0-d, from the largest magnitude (positive, finite)
``block_scale(run, value, amax, scale)``  float32 that E4M3 holds exactly; ``run`` compiles a stage
``ratio(value, block_scale, scale)``  what is rounded to a level

Shapes: N blocks of K = 16 values.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fourge.core.errors import ConfigError
from fourge.nvfp4.blocks import E2M1_MAX, E4M3_MAX, E4M3_TINY, nearest_level, round_e4m3

Stage = Callable[..., Tensor]
Run = Callable[[Stage], Stage]

_FLOAT_MAX = torch.finfo(torch.float32).max
_SIXTH = 1.0 / 6.0


def reference(stage: Stage) -> Stage:
    """The ``run`` that changes nothing: plain torch, the definition."""
    return stage


@dataclass(frozen=True, slots=True)
class Recipe:
    """One tool's way to choose scales."""

    name: str
    scale: Callable[[Tensor], Tensor]
    block_scale: Callable[[Run, Tensor, Tensor, Tensor], Tensor]
    ratio: Callable[[Tensor, Tensor, Tensor], Tensor]
    divides: bool = False

    def multiplier(self, scale: Tensor) -> Tensor:
        """The recipe's scale as one that multiplies, and the reverse."""
        return 1.0 / scale if self.divides else scale


def power_of_two_at_least(value: Tensor) -> Tensor:
    """The smallest power of two that is not below a positive float32, itself a normal float32."""
    mantissa, exponent = torch.frexp(value)
    exponent = torch.where(mantissa > 0.5, exponent, exponent - 1)
    return torch.ldexp(torch.ones_like(value), exponent.clamp(-126, 126))


# --- Transformer Engine, and ours on top of it -------------------------------------------------


def _te_divisor(amax: Tensor) -> Tensor:
    # Tensor by tensor: torch divides a number by a tensor as reciprocal times number.
    return (torch.full_like(amax, E2M1_MAX * E4M3_MAX) / amax).clamp(max=_FLOAT_MAX)


def _te_scale(amax_N: Tensor, divisor: Tensor) -> Tensor:
    return round_e4m3((amax_N.float() * (divisor * _SIXTH)).clamp(max=E4M3_MAX))


def _te_block_scale(run: Run, value_NK: Tensor, amax_N: Tensor, divisor: Tensor) -> Tensor:
    return run(_te_scale)(amax_N, divisor)


def _te_ratio(value_NK: Tensor, block_scale_N: Tensor, divisor: Tensor) -> Tensor:
    return _times_inverse(value_NK, block_scale_N, 1.0 / divisor)


def _times_inverse(value_NK: Tensor, block_scale_N: Tensor, tensor_scale: Tensor) -> Tensor:
    unit_N = block_scale_N * tensor_scale
    inverse_N = torch.where(unit_N > 0, 1.0 / unit_N, 0.0)  # a zero scale has only zero codes
    return value_NK.float() * inverse_N.clamp(max=_FLOAT_MAX).unsqueeze(-1)


def _fourge_tensor_scale(amax: Tensor) -> Tensor:
    return power_of_two_at_least(amax / (E2M1_MAX * 256.0))


def _candidate(amax_N: Tensor, tensor_scale: Tensor, factor: float) -> Tensor:
    scaled_N = amax_N.float() * (1.0 / tensor_scale * _SIXTH) * factor
    return round_e4m3(scaled_N.clamp(max=E4M3_MAX)).clamp(min=E4M3_TINY)


def _six(amax_N: Tensor, tensor_scale: Tensor) -> Tensor:
    """The block scale that maps the block's maximum to 6."""
    return _candidate(amax_N, tensor_scale, 1.0)


def _four(amax_N: Tensor, tensor_scale: Tensor) -> Tensor:
    """The block scale that maps the block's maximum to 4."""
    return _candidate(amax_N, tensor_scale, 1.5)


def _inverse(block_scale_N: Tensor, tensor_scale: Tensor) -> Tensor:
    return 1.0 / (block_scale_N * tensor_scale)


def _squared_error(value_NK: Tensor, inverse_N: Tensor) -> Tensor:
    """Squared error of each block in units of its scale squared, times 2**16.

    Each element's error is rounded to a whole number first (at most 9 * 2**16 by the choice of
    the scale), so that their sum is exact in float32 and no order of summation can differ.
    """
    ratio_NK = value_NK.float().abs() * inverse_N.unsqueeze(-1)
    error_NK = nearest_level(ratio_NK.clamp(max=E2M1_MAX)) - ratio_NK
    return torch.round(error_NK * error_NK * 65536.0).sum(dim=-1)


def _choose(
    value_NK: Tensor, six_N: Tensor, four_N: Tensor, by_six_N: Tensor, by_four_N: Tensor
) -> Tensor:
    six_error_N = _squared_error(value_NK, by_six_N) * (six_N * six_N)
    four_error_N = _squared_error(value_NK, by_four_N) * (four_N * four_N)
    return torch.where(four_error_N < six_error_N, four_N, six_N)


def _four_over_six(run: Run, value_NK: Tensor, amax_N: Tensor, tensor_scale: Tensor) -> Tensor:
    # Stages, not one expression: a compiler would redo the E4M3 rounding for every element. One
    # stage for all four of these stores them interleaved, and is slower (28.9 ms against 18.7).
    six_N, four_N = run(_six)(amax_N, tensor_scale), run(_four)(amax_N, tensor_scale)
    by_six_N = run(_inverse)(six_N, tensor_scale)
    by_four_N = run(_inverse)(four_N, tensor_scale)
    return run(_choose)(value_NK, six_N, four_N, by_six_N, by_four_N)


# --- other tools -------------------------------------------------------------------------------


def _amax_over_2688(amax: Tensor) -> Tensor:
    return amax / (E2M1_MAX * E4M3_MAX)


def _over_product(value_NK: Tensor, block_scale_N: Tensor, tensor_scale: Tensor) -> Tensor:
    return value_NK.float() / (block_scale_N * tensor_scale).unsqueeze(-1)


def _modelopt_block_scale(run: Run, value_NK: Tensor, amax_N: Tensor, s: Tensor) -> Tensor:
    scale_N = round_e4m3((amax_N.float() / (E2M1_MAX * s)).clamp(E4M3_TINY, E4M3_MAX))
    return torch.where(amax_N == 0, 1.0, scale_N)


def _torchao_block_scale(run: Run, value_NK: Tensor, amax_N: Tensor, s: Tensor) -> Tensor:
    return round_e4m3((amax_N.float() / E2M1_MAX / s).clamp(2.0**-6, E4M3_MAX))


def _torchao_ratio(value_NK: Tensor, block_scale_N: Tensor, tensor_scale: Tensor) -> Tensor:
    return value_NK.float() * (1.0 / tensor_scale / block_scale_N).unsqueeze(-1)


def _ct_divisor(amax: Tensor) -> Tensor:
    return E2M1_MAX * E4M3_MAX / amax  # a number by a tensor: two roundings, as there


def _ct_block_scale(run: Run, value_NK: Tensor, amax_N: Tensor, divisor: Tensor) -> Tensor:
    # The division happens in the dtype of the data (in bf16 it rounds), as it does there.
    scaled_N = divisor * (amax_N / E2M1_MAX).float()
    scale_N = round_e4m3(scaled_N.clamp(max=E4M3_MAX))
    return torch.where(scale_N == 0, 0.125, scale_N)


def _ct_ratio(value_NK: Tensor, block_scale_N: Tensor, divisor: Tensor) -> Tensor:
    return value_NK.float() / (block_scale_N / divisor).unsqueeze(-1)


FOURGE = Recipe("fourge", _fourge_tensor_scale, _four_over_six, _times_inverse)
TE = Recipe("te", _te_divisor, _te_block_scale, _te_ratio, divides=True)
MODELOPT = Recipe("modelopt", _amax_over_2688, _modelopt_block_scale, _over_product)
TORCHAO = Recipe("torchao", _amax_over_2688, _torchao_block_scale, _torchao_ratio)
COMPRESSED_TENSORS = Recipe(
    "compressed-tensors", _ct_divisor, _ct_block_scale, _ct_ratio, divides=True
)
RECIPES = {r.name: r for r in (FOURGE, TE, MODELOPT, TORCHAO, COMPRESSED_TENSORS)}


def recipe_named(name: str) -> Recipe:
    """The recipe of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in RECIPES:
        raise ConfigError(f"There is no recipe {name!r}.", fix=f"one of: {', '.join(RECIPES)}")
    return RECIPES[name]
