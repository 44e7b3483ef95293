from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fourge.core import rng
from fourge.nvfp4.blocks import BLOCK, E2M1_LEVELS, decode, unpack
from fourge.nvfp4.matrix import dequantize
from fourge.nvfp4.recipe import TE
from fourge.nvfp4.stochastic import quantize_stochastic, unbiased_tensor_scale
from tests.nvfp4.strategies import weights
from tests.nvfp4.test_matrix import same, units

TRIALS = 4000


def test_the_mean_is_exact_on_every_cell_of_the_grid() -> None:
    """Each row holds one ratio many times; the block maximum fixes the unit at exactly 1."""
    ratios = [a + f * (b - a) for a, b in pairwise(E2M1_LEVELS) for f in (0.1, 0.25, 0.5, 0.9)]
    weight = torch.tensor(ratios).unsqueeze(1).repeat(1, BLOCK * (TRIALS // 15 + 1))
    weight[:, ::BLOCK] = 5.64  # 6 * 16 / 17, hence a block scale of 1 with a tensor scale of 1
    matrix = quantize_stochastic(weight, rng.key(0, 0, "grid"), tensor_scale=torch.ones(()))
    assert (matrix.block_scale_RB.float() == 1).all()
    decoded = dequantize(matrix).view(len(ratios), -1, BLOCK)[..., 1:].flatten(1)
    mean, spread = decoded.mean(1), decoded.std(1)
    error = (mean - torch.tensor(ratios)) / (spread / decoded.shape[1] ** 0.5)
    assert error.abs().max() < 4.5
    assert error.abs().mean() < 1.5


def test_a_value_on_a_level_never_moves() -> None:
    weight = torch.tensor([*E2M1_LEVELS[:7], *(-x for x in E2M1_LEVELS[:7]), 0.0, 5.64])
    for trial in range(50):
        matrix = quantize_stochastic(
            weight.unsqueeze(0), rng.key(1, trial, "w"), tensor_scale=torch.ones(())
        )
        assert torch.equal(dequantize(matrix)[0, :15], weight[:15])


@given(weights())
def test_nothing_is_ever_clipped(weight: Tensor) -> None:
    matrix = quantize_stochastic(weight, rng.key(0, 0, "w"))
    assert (weight.abs() <= 6 * units(matrix)).all()


def test_nothing_is_clipped_where_block_scales_are_subnormal() -> None:
    """There a step of E4M3 is more than 1/16: rounding to nearest would fall short."""
    for units_of_scale in (0.3, 1.3, 2.2, 3.4, 5.3):
        weight = torch.full((1, BLOCK), 6 * units_of_scale * 2.0**-9)
        matrix = quantize_stochastic(weight, rng.key(0, 0, "w"), tensor_scale=torch.ones(()))
        assert (weight <= 6 * units(matrix)).all(), units_of_scale


@given(weights())
def test_the_result_is_one_of_the_two_neighbours(weight: Tensor) -> None:
    matrix = quantize_stochastic(weight, rng.key(0, 0, "w"))
    ratio = weight / units(matrix)
    level = decode(unpack(matrix.packed_RC))
    grid = torch.tensor([-x for x in E2M1_LEVELS[:0:-1]] + list(E2M1_LEVELS))
    below = grid[(torch.searchsorted(grid, ratio, right=True) - 1).clamp(min=0)]
    above = grid[torch.searchsorted(grid, ratio).clamp(max=len(grid) - 1)]
    assert ((level == below) | (level == above)).all()


@pytest.mark.parametrize("std", [1e-6, 0.02, 1e4])
def test_the_projection_on_the_weight_is_unbiased(std: float) -> None:
    """<x, Q(x)> / <x, x> is 0.9967 where the maximum clips; here it is 1 within 4 errors."""
    torch.manual_seed(1)
    weight = torch.randn(256, 1024) * std
    share = []
    for step in range(20):
        decoded = dequantize(quantize_stochastic(weight, rng.key(7, step, "w")))
        share.append(((decoded * weight).sum() / weight.square().sum()).item())
    mean = torch.tensor(share)
    assert abs(mean.mean() - 1) < 4 * mean.std() / 20**0.5 + 1e-6


def test_nearest_scales_would_be_biased() -> None:
    """The reason for the 17/16: with the plain block scale, elements above 6 are lost."""
    weight = torch.randn(256, 1024)
    from fourge.nvfp4.matrix import quantize

    matrix = quantize(weight, recipe=TE)
    clipped = (weight.abs() > 6 * units(matrix)).float().mean()
    assert clipped > 0.01


def test_chunks_and_shards_have_the_bits_of_the_whole() -> None:
    weight = torch.randn(12, 64)
    key = rng.key(5, 6, "w")
    scale = unbiased_tensor_scale(weight.abs().amax())
    whole = quantize_stochastic(weight, key)
    top = quantize_stochastic(weight[:5], key, tensor_scale=scale)
    rest = quantize_stochastic(weight[5:], key, tensor_scale=scale, first_element=5 * 64)
    assert same(whole.rows(torch.arange(5)), top)
    assert same(whole.rows(torch.arange(5, 12)), rest)


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_the_same_key_gives_the_same_codes_and_another_step_others(seed: int, step: int) -> None:
    weight = torch.linspace(-1, 1, 640).view(4, 160)
    one = quantize_stochastic(weight, rng.key(seed, step, "w"))
    assert same(one, quantize_stochastic(weight, rng.key(seed, step, "w")))
    assert not same(one, quantize_stochastic(weight, rng.key(seed, step + 1, "w")))


def test_a_zero_weight_stays_zero() -> None:
    matrix = quantize_stochastic(torch.zeros(2, 32), rng.key(0, 0, "w"))
    assert (dequantize(matrix) == 0).all()
