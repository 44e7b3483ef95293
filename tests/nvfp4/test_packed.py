"""Codes as the master weight: what is not touched stays, what is added arrives on average."""

import copy
import pickle
from math import sqrt

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fourge.core import rng
from fourge.core.errors import DivergedError, FormatError
from fourge.nvfp4.blocks import BLOCK, E2M1_LEVELS, E4M3_MAX, pack
from fourge.nvfp4.compiled import SMALL
from fourge.nvfp4.linear import Nvfp4Linear, ScaleGroup
from fourge.nvfp4.matrix import Nvfp4Matrix, dequantize, quantize, tensor_scale_for
from fourge.nvfp4.packed import ROOM, PackedWeight, requantize_rows_
from fourge.nvfp4.recipe import FOURGE
from tests.nvfp4.strategies import weights
from tests.nvfp4.test_matrix import same

TRIALS = 20_000
E4M3 = torch.arange(1, 127, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
SUBNORMAL = 2.0**-9


def matrix_of(block_scale: Tensor, codes: Tensor, tensor_scale: float) -> Nvfp4Matrix:
    """A matrix from its parts: rows x blocks of scales, rows x columns of codes."""
    return Nvfp4Matrix(
        pack(codes.to(torch.uint8)), block_scale.to(torch.float8_e4m3fn), torch.tensor(tensor_scale)
    )


def random_matrix(rows: int, blocks: int, tensor_scale: float = 2.0**-12) -> Nvfp4Matrix:
    """Any codes, both zeros among them, under any block scales; no block can be halved."""
    generator = torch.Generator().manual_seed(rows * 1000 + blocks)
    codes = torch.randint(16, (rows, blocks * BLOCK), generator=generator)
    codes[:, ::BLOCK] = 6 + 8 * (codes[:, ::BLOCK] % 2) + codes[:, 1::BLOCK] % 2  # a 4 or a 6
    scale = E4M3[torch.randint(len(E4M3), (rows, blocks), generator=generator)]
    return matrix_of(scale, codes, tensor_scale)


def rewritten(matrix: Nvfp4Matrix, value: Tensor, key: rng.Key, *, cut: int = 0) -> Nvfp4Matrix:
    """A copy with all of its rows written anew, in one piece or in pieces of ``cut`` rows."""
    result = copy.deepcopy(PackedWeight(matrix)).matrix
    rows = len(value)
    for start in range(0, rows, cut or rows):
        part = slice(start, min(rows, start + (cut or rows)))
        requantize_rows_(result, part, value[part], key, kernel="reference")
    return result


@given(st.integers(0, 1 << 30), st.sampled_from([1.0, 2.0**-12, 2.0**-40, 2.0**20]))
def test_what_lies_on_the_grid_comes_back_bit_for_bit(seed: int, tensor_scale: float) -> None:
    matrix = random_matrix(3, 1 + seed % 4, tensor_scale)
    after = rewritten(matrix, dequantize(matrix), rng.key(seed, seed, "w"))
    assert same(after, matrix)


@given(weights(), st.integers(0, 1000))
def test_a_quantised_weight_written_back_is_the_same_weight(weight: Tensor, step: int) -> None:
    matrix = quantize(weight, tensor_scale=tensor_scale_for([weight]) * ROOM)
    after = rewritten(matrix, dequantize(matrix), rng.key(0, step, "w"))
    assert torch.equal(dequantize(after), dequantize(matrix))


@pytest.mark.parametrize("scale", [2.0**-5, 1.0, 1.75, 13.0, 448.0])
def test_a_block_that_fell_to_half_gets_half_the_scale_and_loses_nothing(scale: float) -> None:
    levels = torch.tensor([*E2M1_LEVELS[:6], *(-level for level in E2M1_LEVELS[:6]), 0, 0, 0, 3.0])
    codes = torch.tensor([*range(6), *range(8, 14), 0, 0, 0, 5])
    matrix = matrix_of(torch.tensor([[scale]]), codes.unsqueeze(0), 1.0)
    after = rewritten(matrix, levels.unsqueeze(0) * scale, rng.key(0, 0, "w"))
    assert after.block_scale_RB.float().item() == scale / 2
    assert torch.equal(dequantize(after), levels.unsqueeze(0) * scale)


@pytest.mark.parametrize(("largest", "halves"), [(3.0, True), (3.01, False)])
def test_the_scale_is_halved_only_where_all_of_it_still_fits(largest: float, halves: bool) -> None:
    matrix = matrix_of(torch.ones(64, 1), torch.zeros(64, BLOCK), 1.0)
    value = torch.full((64, BLOCK), 0.7)
    value[:, 5] = -largest
    after = rewritten(matrix, value, rng.key(0, 0, "w"))
    assert (after.block_scale_RB.float() == (0.5 if halves else 1.0)).all()
    assert (dequantize(after)[:, 5] == -3.0).any()


@pytest.mark.parametrize("scale", [SUBNORMAL, 5 * SUBNORMAL, 2.0**-6, 1.875 * 2.0**-6])
def test_a_scale_is_never_halved_into_numbers_without_a_full_mantissa(scale: float) -> None:
    matrix = matrix_of(torch.tensor([[scale]]), torch.ones(1, BLOCK), 1.0)
    after = rewritten(matrix, dequantize(matrix), rng.key(0, 0, "w"))
    assert same(after, matrix)


# The old block scale, the largest value over 6 (the scale that is needed), what it is about.
CASES = {
    "stays": (1.0, 0.93),
    "halves": (1.0, 0.46),
    "grows a little": (1.0, 1.004),
    "grows half a step": (1.0, 1.0625),
    "grows to just below the next": (1.0, 1.12),
    "grows over several steps": (1.0, 1.7),
    "grows across a binade": (1.0, 1.98),
    "grows over binades": (0.25, 9.3),
    "a large scale": (400.0, 430.0),
    "a full binade above": (208.0, 250.0),
    "the smallest scale": (SUBNORMAL, 1.4 * SUBNORMAL),
    "a subnormal scale": (3 * SUBNORMAL, 4.7 * SUBNORMAL),
    "from subnormal to normal": (7 * SUBNORMAL, 7.6 * SUBNORMAL),
    "the lowest normal scale": (2.0**-6, 1.06 * 2.0**-6),
}


@pytest.mark.parametrize(("old", "needed"), CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("tensor_scale", [1.0, 2.0**-15])
def test_the_expectation_of_every_value_is_kept(
    old: float, needed: float, tensor_scale: float
) -> None:
    """Several values are near the largest: what the lower scale would clip is not lost."""
    share = torch.tensor([1.0, -0.999, 0.995, -0.97, 0.94, 0.9, -0.8, 0.7, 0.55, -0.4, 0.3, 0.2,
                          -0.1, 0.05, 0.001, 0.0])  # fmt: skip
    value = share * (6 * needed * tensor_scale)
    matrix = matrix_of(torch.full((TRIALS, 1), old), torch.zeros(TRIALS, BLOCK), tensor_scale)
    after = rewritten(matrix, value.expand(TRIALS, -1), rng.key(3, 1, "w"))
    decoded = dequantize(after, kernel="reference").double() / tensor_scale
    wanted = value.double() / tensor_scale
    standard_error = decoded.std(0) / sqrt(TRIALS)
    rounding = 1e-6 * 6 * needed
    assert ((decoded.mean(0) - wanted).abs() <= 4 * standard_error + rounding).all()


@pytest.mark.parametrize(("old", "needed"), CASES.values(), ids=CASES.keys())
def test_a_new_scale_is_a_neighbour_of_what_is_needed(old: float, needed: float) -> None:
    matrix = matrix_of(torch.full((512, 1), old), torch.zeros(512, BLOCK), 1.0)
    value = torch.full((512, BLOCK), 6 * needed)
    after = rewritten(matrix, value, rng.key(0, 0, "w")).block_scale_RB.float()
    if needed <= old:
        assert after.unique().tolist() == [old / 2 if needed <= old / 2 else old]
    else:
        place = int(torch.searchsorted(E4M3, needed, right=True))
        assert after.unique().tolist() == E4M3[place - 1 : place + 1].tolist()


def test_scale_and_codes_have_noise_of_their_own() -> None:
    """If one stream decided both, a value would go up where the scale does, and only there."""
    matrix = matrix_of(torch.ones(TRIALS, 1), torch.zeros(TRIALS, BLOCK), 1.0)
    value = torch.zeros(TRIALS, BLOCK)
    value[:, 0] = 0.25  # the first element's number is the one with the block's own index
    value[:, 1] = 6 * 1.0625
    after = rewritten(matrix, value, rng.key(0, 0, "w"))
    up = (after.block_scale_RB.float() > 1.01).squeeze(1).double()
    moved = (dequantize(after, kernel="reference")[:, 0] > 0).double()
    correlation = torch.corrcoef(torch.stack([up, moved]))[0, 1]
    expected = -0.0566  # 0.25 is 0.5 of a code under the lower scale, 0.44 under the upper
    assert abs(correlation - expected) < 4 / sqrt(TRIALS)


def updates(matrix: Nvfp4Matrix, size: float) -> Tensor:
    """The weight, moved by noise relative to each block: blocks stay, grow and shrink."""
    generator = torch.Generator().manual_seed(1)
    value = dequantize(matrix)
    unit = (matrix.block_scale_RB.float() * matrix.tensor_scale).repeat_interleave(BLOCK, 1)
    moved = value + torch.randn(value.shape, generator=generator) * unit * size
    moved[::3] *= 0.3
    return moved.clamp(-6 * E4M3_MAX * matrix.tensor_scale, 6 * E4M3_MAX * matrix.tensor_scale)


@pytest.mark.parametrize("cut", [1, 3, 4, 10])
def test_row_chunks_change_no_bit(cut: int) -> None:
    matrix = random_matrix(11, 5)
    value, key = updates(matrix, 1.0), rng.key(5, 6, "w")
    whole = rewritten(matrix, value, key)
    assert not same(whole, matrix)
    assert same(rewritten(matrix, value, key, cut=cut), whole)


def test_rows_that_are_not_named_are_not_written() -> None:
    matrix = random_matrix(6, 3)
    value, key = updates(matrix, 1.0), rng.key(1, 1, "w")
    after = copy.deepcopy(PackedWeight(matrix)).matrix
    requantize_rows_(after, slice(2, 4), value[2:4], key)
    whole = rewritten(matrix, value, key)
    for rows, expected in (((0, 1, 4, 5), matrix), ((2, 3), whole)):
        assert same(after.rows(torch.tensor(rows)), expected.rows(torch.tensor(rows)))


def test_a_slice_without_a_start_begins_at_the_first_row() -> None:
    matrix = random_matrix(4, 2)
    value, key = updates(matrix, 1.0), rng.key(1, 1, "w")
    after = copy.deepcopy(PackedWeight(matrix)).matrix
    requantize_rows_(after, slice(None), value, key)
    assert same(after, rewritten(matrix, value, key))


def test_the_key_selects_the_noise() -> None:
    matrix = random_matrix(8, 4)
    value = updates(matrix, 0.3)
    one, two = (rewritten(matrix, value, rng.key(0, step, "w")) for step in (1, 2))
    assert same(one, rewritten(matrix, value, rng.key(0, 1, "w")))
    assert not same(one, two)


def test_a_sign_flip_flips_the_sign_and_nothing_else() -> None:
    matrix = random_matrix(8, 4)
    value, key = updates(matrix, 0.3), rng.key(2, 2, "w")
    one, two = rewritten(matrix, value, key), rewritten(matrix, -value, key)
    assert torch.equal(dequantize(one), -dequantize(two))


@pytest.mark.slow
def test_compiled_is_the_reference_bit_for_bit() -> None:
    matrix = random_matrix(SMALL // 4 + 5, 4)
    assert matrix.block_scale_RB.numel() > SMALL
    for step, size in enumerate((0.0, 1e-3, 0.3, 4.0)):
        value, key = updates(matrix, size), rng.key(0, step, "w")
        plain, fast = (copy.deepcopy(PackedWeight(matrix)).matrix for _ in range(2))
        requantize_rows_(plain, slice(0, len(value)), value, key, kernel="reference")
        requantize_rows_(fast, slice(0, len(value)), value, key, kernel="compiled")
        assert same(plain, fast)


def test_weights_can_grow_as_far_as_there_is_room_and_no_further() -> None:
    scale = torch.tensor(2.0**-16)
    weight = torch.full((2, 32), 6 * E4M3_MAX) * scale  # as large as can be without room
    matrix = quantize(weight, tensor_scale=scale * ROOM)
    before, key = copy.deepcopy(PackedWeight(matrix)).matrix, rng.key(0, 0, "w")
    with pytest.raises(DivergedError, match=r"q_proj has grown more than 8 times"):
        requantize_rows_(matrix, slice(0, 2), weight * (ROOM * 1.001), key, name="q_proj")
    assert same(matrix, before)
    requantize_rows_(matrix, slice(0, 2), weight * ROOM, key)
    assert torch.equal(dequantize(matrix), weight * ROOM)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_value_that_is_not_finite_is_refused_and_nothing_is_written(bad: float) -> None:
    matrix = random_matrix(2, 2)
    before, value = copy.deepcopy(PackedWeight(matrix)).matrix, dequantize(matrix)
    value[1, 7] = bad
    with pytest.raises(FormatError, match=r"q_proj has a value that is not finite"):
        requantize_rows_(matrix, slice(0, 2), value, rng.key(0, 0, "w"), name="q_proj")
    assert same(matrix, before)


def packed_weight(rows: int = 8, columns: int = 64) -> PackedWeight:
    torch.manual_seed(0)
    return PackedWeight(quantize(torch.randn(rows, columns) * 0.02))


def test_to_torch_it_is_a_parameter_of_that_shape() -> None:
    weight = packed_weight()
    assert isinstance(weight, nn.Parameter)
    assert weight.shape == (8, 64)
    assert weight.dtype == torch.bfloat16
    assert PackedWeight(weight.matrix, torch.float32).dtype == torch.float32
    assert weight.requires_grad
    assert weight.is_leaf
    layer = nn.Linear(64, 8, bias=False)
    layer.weight = weight
    assert [name for name, _ in layer.named_parameters()] == ["weight"]


def test_it_holds_no_dense_memory() -> None:
    weight = packed_weight(31, 1024)
    assert weight.untyped_storage().nbytes() == 2
    assert copy.deepcopy(weight).untyped_storage().nbytes() == 2
    parts = (weight.matrix.packed_RC, weight.matrix.block_scale_RB, weight.matrix.tensor_scale)
    assert sum(part.nbytes for part in parts) == Nvfp4Matrix.nbytes_for(31, 1024)


def test_its_gradient_arrives_whole_and_adds_up() -> None:
    weight, grad = packed_weight(), torch.randn(8, 64).bfloat16()
    for _ in range(2):
        (weight * grad).sum().backward()
    assert weight.grad is not None
    assert weight.grad.is_contiguous()
    assert weight.grad.untyped_storage().nbytes() == 8 * 64 * 2
    assert torch.equal(weight.grad, 2 * grad)


@pytest.mark.parametrize("trained", [True, False])
def test_a_copy_is_the_same_weight_and_independent(trained: bool) -> None:
    weight = packed_weight().requires_grad_(trained)
    assert isinstance(weight, PackedWeight)
    for other in (copy.deepcopy(weight), pickle.loads(pickle.dumps(weight))):
        assert type(other) is PackedWeight
        assert same(other.matrix, weight.matrix)
        assert other.dtype == weight.dtype
        assert other.requires_grad is trained
        for part in ("packed_RC", "block_scale_RB", "tensor_scale"):
            mine, its = getattr(weight.matrix, part), getattr(other.matrix, part)
            assert mine.data_ptr() != its.data_ptr()
        requantize_rows_(other.matrix, slice(0, 8), torch.zeros(8, 64), rng.key(0, 0, "w"))
        assert dequantize(weight.matrix).any()


def group(*, bias: bool = False) -> ScaleGroup:
    """Three layers that share a scale, the second with the largest weights by far."""
    torch.manual_seed(2)
    linears = [nn.Linear(32, rows, bias=bias) for rows in (8, 24, 16)]
    with torch.no_grad():
        linears[1].weight.mul_(20)
    layers = [Nvfp4Linear(linear, scheme="w4a16", backend="dequant") for linear in linears]
    return ScaleGroup(layers, FOURGE)


def test_packed_members_share_one_scale_with_room() -> None:
    together = group()
    alone = tensor_scale_for([member.weight for member in together.members])
    together.pack_()
    for member in together.members:
        assert isinstance(member.weight, PackedWeight)
        assert torch.equal(member.weight.matrix.tensor_scale, alone * ROOM)
        assert member.codes() is member.weight.matrix


def test_packing_is_rounding_once() -> None:
    """Room takes three binades of the block scales and no digit of the values."""
    together = group()
    before = [dequantize(member.codes()) for member in together.members]
    together.pack_()
    after = [dequantize(member.codes()) for member in together.members]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_packing_twice_is_packing_once() -> None:
    together = group()
    together.pack_()
    before = [dequantize(member.codes()) for member in together.members]
    together.pack_()
    after = [dequantize(member.codes()) for member in together.members]
    assert before[0].any()
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_packed_layer_multiplies_by_its_codes_as_they_are_now() -> None:
    layer = group(bias=True).members[0]
    layer.group.pack_()
    weight = layer.weight
    assert isinstance(weight, PackedWeight)
    x = torch.randn(5, 32, requires_grad=True)
    for step in range(3):
        dense = dequantize(weight.matrix)
        torch.testing.assert_close(layer(x), x @ dense.T + layer.bias)
        requantize_rows_(weight.matrix, slice(0, 8), dense + 0.05, rng.key(0, step, "w"))
        assert not torch.equal(dequantize(weight.matrix), dense)


def test_a_packed_layer_has_the_gradients_of_a_dense_one() -> None:
    layer = group(bias=True).members[0]
    layer.group.pack_()
    dense = nn.Linear(32, 8)
    with torch.no_grad():
        dense.weight.copy_(dequantize(layer.codes()))
        dense.bias.copy_(layer.bias)
    x = torch.randn(5, 32)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    for each, model in zip(inputs, (layer, dense), strict=True):
        model(each).square().sum().backward()
    assert layer.weight.grad is not None
    assert dense.weight.grad is not None
    assert layer.weight.grad.is_contiguous()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
    torch.testing.assert_close(layer.weight.grad.float(), dense.weight.grad, rtol=8e-3, atol=1e-3)
    torch.testing.assert_close(layer.bias.grad, dense.bias.grad)
