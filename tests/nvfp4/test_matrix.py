import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from fourge.core.errors import FormatError
from fourge.nvfp4.blocks import BLOCK, E4M3_TINY, unpack
from fourge.nvfp4.matrix import (
    Nvfp4Matrix,
    dequantize,
    fake_quantize,
    quantize,
    tensor_scale_for,
)
from fourge.nvfp4.recipe import FOURGE, RECIPES, TE
from tests.nvfp4.strategies import weights


def units(matrix: Nvfp4Matrix) -> Tensor:
    return (matrix.block_scale_RB.float() * matrix.tensor_scale).repeat_interleave(BLOCK, dim=1)


def same(one: Nvfp4Matrix, two: Nvfp4Matrix) -> bool:
    return (
        torch.equal(one.packed_RC, two.packed_RC)
        and torch.equal(one.block_scale_RB.view(torch.uint8), two.block_scale_RB.view(torch.uint8))
        and torch.equal(one.tensor_scale, two.tensor_scale)
    )


@given(weights())
def test_the_error_is_at_most_one_unit_of_the_block_scale(weight: Tensor) -> None:
    matrix = quantize(weight)
    error = (dequantize(matrix) - weight).abs()
    assert (error <= units(matrix) * (1 + 1e-5)).all()


@given(weights())
def test_quantising_twice_changes_nothing(weight: Tensor) -> None:
    once = dequantize(quantize(weight))
    assert torch.equal(dequantize(quantize(once)), once)


@given(weights())
def test_a_sign_flip_flips_the_sign_and_nothing_else(weight: Tensor) -> None:
    one, two = quantize(weight), quantize(-weight)
    assert torch.equal(unpack(one.packed_RC) ^ 8, unpack(two.packed_RC))
    assert torch.equal(dequantize(two), -dequantize(one))


@given(weights())
def test_a_power_of_two_scales_the_result_and_nothing_else(weight: Tensor) -> None:
    one, two = quantize(weight), quantize(weight * 8)
    assert torch.equal(dequantize(two), dequantize(one) * 8)


@given(weights())
def test_our_values_are_exact_in_bf16(weight: Tensor) -> None:
    """So bf16 engines, and readers that divide by the reciprocal, see the same numbers."""
    matrix = quantize(weight)
    dense = dequantize(matrix)
    assert torch.equal(dense.to(torch.bfloat16).float(), dense)
    assert torch.equal(dequantize(matrix, dtype=torch.bfloat16).float(), dense)
    divided = matrix.block_scale_RB.float() / (1 / matrix.tensor_scale)
    assert torch.equal(divided, matrix.block_scale_RB.float() * matrix.tensor_scale)


@given(weights())
def test_four_over_six_is_never_worse_in_any_block(weight: Tensor) -> None:
    """Against both scales it chose from, up to the rounding of the sums it compared."""
    matrix = quantize(weight)
    chosen = _block_error(dequantize(matrix), weight)
    for factor in (1.0, 1.5):
        amax = weight.unflatten(1, (-1, BLOCK)).abs().amax(-1)
        scale = amax / matrix.tensor_scale / 6 * factor
        scale = scale.clamp(max=448).to(torch.float8_e4m3fn).float().clamp(min=E4M3_TINY)
        forced = Nvfp4Matrix(matrix.packed_RC, scale.to(torch.float8_e4m3fn), matrix.tensor_scale)
        unit = units(forced)
        levels = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
        ratio = (weight / unit).abs().unsqueeze(-1)
        nearest = levels[(ratio - levels).abs().argmin(-1)] * unit * weight.sign()
        slack = 16 / 65536 * (units(forced).view(len(weight), -1, BLOCK)[..., 0] ** 2)
        assert (chosen <= _block_error(nearest, weight) * (1 + 1e-5) + slack).all()


def test_six_is_chosen_when_both_are_as_good() -> None:
    weight = torch.tensor([[1536.0, 768.0, 384.0] + [0.0] * 13])  # exact at 256 and at 384
    matrix = quantize(weight)
    assert torch.equal(dequantize(matrix), weight)
    assert matrix.tensor_scale.item() == 1
    assert matrix.block_scale_RB.float().item() == 256


def _block_error(dense: Tensor, weight: Tensor) -> Tensor:
    blocks: Tensor = (dense - weight).unflatten(1, (-1, BLOCK))
    return blocks.square().sum(-1)


@pytest.mark.parametrize("std", [1e-6, 0.02, 1e4])
def test_four_over_six_gains_over_plain_nearest(std: float) -> None:
    torch.manual_seed(0)
    weight = torch.randn(64, 512) * std
    plain = (dequantize(quantize(weight, recipe=TE)) - weight).norm() / weight.norm()
    ours = (dequantize(quantize(weight)) - weight).norm() / weight.norm()
    assert 0.093 < plain < 0.097
    assert 0.085 < ours < 0.089


@given(weights())
def test_fake_quantising_is_quantising_and_decoding(weight: Tensor) -> None:
    for recipe in RECIPES.values():
        both = dequantize(quantize(weight, recipe=recipe))
        assert torch.equal(fake_quantize(weight, recipe=recipe), both), recipe.name


def test_every_e4m3_byte_decodes_as_torch_reads_it() -> None:
    scale = torch.arange(256, dtype=torch.uint8).view(256, 1).view(torch.float8_e4m3fn)
    packed = torch.full((256, 8), 0x22, dtype=torch.uint8)  # sixteen times the level 1
    matrix = Nvfp4Matrix(packed, scale, torch.tensor(2.0))
    expected = (scale.float() * 2).expand(256, 16)
    torch.testing.assert_close(dequantize(matrix), expected, rtol=0, atol=0, equal_nan=True)


def test_a_zero_weight_decodes_to_zero() -> None:
    for recipe in RECIPES.values():
        matrix = quantize(torch.zeros(2, 32), recipe=recipe)
        assert matrix.tensor_scale.item() == 1.0
        assert (dequantize(matrix) == 0).all()


def test_a_zero_block_has_a_scale_that_nobody_divides_by_zero_with() -> None:
    weight = torch.randn(2, 32)
    weight[:, :16] = 0
    matrix = quantize(weight)
    assert (matrix.block_scale_RB.float() > 0).all()
    assert (dequantize(matrix)[:, :16] == 0).all()


def test_a_tiny_block_beside_a_large_one_keeps_what_it_can() -> None:
    weight = torch.ones(1, 32)
    weight[0, 16:] = 1e-6  # its scale is below the smallest that E4M3 rounds to
    kept = dequantize(quantize(weight))[0, 16:]
    assert (kept >= 0).all()
    assert (kept <= 2e-6).all()


def test_the_tensor_scale_multiplies() -> None:
    """A file that stores the reciprocal decodes to garbage that still looks like weights."""
    matrix = quantize(torch.full((1, BLOCK), 2688.0), recipe=TE)  # 6 * 448: the scale is 1
    assert matrix.tensor_scale.item() == 1.0
    assert dequantize(matrix).max().item() == 2688.0


def test_a_group_shares_the_scale_of_its_largest_weight() -> None:
    small, large = torch.randn(4, 32), torch.randn(4, 32) * 100
    scale = tensor_scale_for([small, large])
    assert torch.equal(scale, tensor_scale_for([large]))
    matrix = quantize(small, tensor_scale=scale)
    assert torch.equal(matrix.tensor_scale, scale)
    assert ((dequantize(matrix) - small).norm() / small.norm()) < 0.12


def test_the_promised_size_is_the_size() -> None:
    matrix = quantize(torch.randn(8, 64))
    real = matrix.packed_RC.nbytes + matrix.block_scale_RB.nbytes + matrix.tensor_scale.nbytes
    assert real == Nvfp4Matrix.nbytes_for(8, 64)


def test_chosen_rows_are_the_rows() -> None:
    matrix = quantize(torch.randn(6, 32))
    index = torch.tensor([5, 0, 3])
    assert torch.equal(dequantize(matrix.rows(index)), dequantize(matrix)[index])


@pytest.mark.parametrize("shape", [(3, 8), (16,), (2, 3, 16), (0, 16), ()])
def test_what_does_not_divide_into_blocks_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(FormatError, match="multiple of 16"):
        quantize(torch.zeros(shape))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_value_that_is_not_finite_is_refused(value: float) -> None:
    weight = torch.randn(4, 32)
    weight[2, 5] = value
    with pytest.raises(FormatError, match="not finite"):
        quantize(weight)


def test_pieces_that_do_not_fit_are_refused() -> None:
    good = quantize(torch.randn(4, 32))
    with pytest.raises(FormatError, match="do not go with"):
        Nvfp4Matrix(good.packed_RC, good.block_scale_RB[:, :1], good.tensor_scale)


def test_the_master_dtype_changes_nothing_but_its_own_rounding() -> None:
    weight = torch.randn(8, 64).to(torch.bfloat16)
    assert same(quantize(weight), quantize(weight.float()))


def test_a_transposed_weight_is_quantised_as_it_reads() -> None:
    weight = torch.randn(32, 16)
    assert same(quantize(weight.t()), quantize(weight.t().contiguous()))


@settings(max_examples=20)
@given(weights())
def test_the_default_tensor_scale_is_a_power_of_two_that_fits(weight: Tensor) -> None:
    scale = tensor_scale_for([weight], recipe=FOURGE).item()
    assert torch.frexp(torch.tensor(scale))[0].item() == 0.5
    largest = weight.abs().max().item()
    if largest > 0:
        assert largest <= scale * 6 * 256 * (1 + 1e-6)
        assert largest > scale * 6 * 256 / 2 * (1 - 1e-6)
