"""Each recipe against the tool whose bytes it promises: exact, each with its own formula."""

import logging
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fourge.core.errors import ConfigError
from fourge.nvfp4.blocks import encode, pack
from fourge.nvfp4.matrix import dequantize, quantize
from fourge.nvfp4.recipe import (
    COMPRESSED_TENSORS,
    MODELOPT,
    RECIPES,
    TE,
    TORCHAO,
    power_of_two_at_least,
    recipe_named,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    logging.getLogger("torchao").setLevel(logging.ERROR)
    from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.lifecycle.forward import fake_quantize as ct_fake
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
    from modelopt.torch.quantization.qtensor import NVFP4QTensor
    from torchao.prototype.mx_formats.nvfp4_tensor import (
        nvfp4_quantize,
        per_tensor_amax_to_scale,
    )

STDS = [1e-6, 0.02, 1.0, 1e4]


def samples(dtype: torch.dtype) -> list[Tensor]:
    torch.manual_seed(11)
    made = []
    for std in STDS:
        weight = torch.randn(96, 512) * std
        weight[0, :16] = 0
        weight[1, 16:32] *= 1e-5
        weight[2] = torch.round(weight[2] / std * 4) / 4 * std
        made.append(weight.to(dtype))
    return made


def bf16_valued(count: int) -> list[Tensor]:
    """Float32 tensors of bf16 numbers, which lie on ties: the last bit of a scale decides."""
    torch.manual_seed(5)
    return [(torch.randn(64, 512) * 0.02).bfloat16().float() for _ in range(count)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_torchao_gives_the_same_codes_and_scales(dtype: torch.dtype) -> None:
    for weight in samples(dtype):
        scale = per_tensor_amax_to_scale(weight.abs().amax().float())
        their_scale, their_codes = nvfp4_quantize(weight, 16, scale)
        ours = quantize(weight, recipe=TORCHAO)
        assert torch.equal(ours.tensor_scale, scale)
        assert torch.equal(ours.block_scale_RB.float(), their_scale.float())
        assert torch.equal(ours.packed_RC, their_codes.view(torch.uint8))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_modelopt_gives_the_same_codes_and_scales(dtype: torch.dtype) -> None:
    for weight in samples(dtype):
        tensor, block_scale, scale = NVFP4QTensor.quantize(weight, 16)
        ours = quantize(weight, recipe=MODELOPT)
        assert torch.equal(ours.tensor_scale, scale.float())
        assert torch.equal(ours.block_scale_RB.float(), block_scale.float())
        assert torch.equal(positive_zeros(ours.packed_RC), positive_zeros(tensor._quantized_data))


def positive_zeros(packed: Tensor) -> Tensor:
    """ModelOpt and compressed-tensors give -0.0 the code 0 where we keep its sign."""
    low, high = packed & 0xF, packed >> 4
    low, high = torch.where(low == 8, 0, low), torch.where(high == 8, 0, high)
    return low | (high << 4)


def compressed(weight: Tensor) -> tuple[dict[str, Tensor], QuantizationScheme]:
    args = QuantizationArgs(
        num_bits=4,
        type="float",
        strategy="tensor_group",
        group_size=16,
        scale_dtype=torch.float8_e4m3fn,
    )
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    blocks = weight.unflatten(-1, (-1, 16))
    low, high = blocks.amin(-1), blocks.amax(-1)
    divisor = generate_gparam(low.amin(), high.amax()).reshape(1)
    scale, _ = calculate_qparams(low, high, args, global_scale=divisor)
    state = {"weight": weight, "weight_scale": scale, "weight_global_scale": divisor}
    return NVFP4PackedCompressor.compress(state, scheme), scheme


def test_compressed_tensors_gives_the_same_codes_and_scales() -> None:
    for weight in [*samples(torch.float32), *bf16_valued(60)]:
        theirs, _ = compressed(weight)
        ours = quantize(weight, recipe=COMPRESSED_TENSORS)
        divisor = theirs["weight_global_scale"].float().reshape(())
        assert torch.equal(ours.tensor_scale, 1 / divisor)
        assert torch.equal(ours.block_scale_RB.float(), theirs["weight_scale"].float())
        codes = positive_zeros(theirs["weight_packed"])
        assert torch.equal(positive_zeros(ours.packed_RC), codes)


def test_compressed_tensors_decodes_our_weights_to_our_values() -> None:
    for weight in samples(torch.float32):
        ours = quantize(weight)
        _, scheme = compressed(weight)
        state = {
            "weight_packed": ours.packed_RC,
            "weight_scale": ours.block_scale_RB,
            "weight_global_scale": (1 / ours.tensor_scale).reshape(1),
        }
        theirs = NVFP4PackedCompressor.decompress(state, scheme)["weight"]
        assert torch.equal(theirs.float(), dequantize(ours))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_activations_are_rounded_as_compressed_tensors_rounds_them(dtype: torch.dtype) -> None:
    from fourge.nvfp4.matrix import fake_quantize

    args = QuantizationArgs(
        num_bits=4, type="float", strategy="tensor_group", group_size=16, dynamic="local",
        scale_dtype=torch.float8_e4m3fn,
    )  # fmt: skip
    torch.manual_seed(2)
    for std in (0.01, 1.0, 50.0):
        x = (torch.randn(40, 256) * std).to(dtype)
        divisor = torch.tensor([2.0**6 / std]).log2().round().exp2()
        blocks = x.unflatten(-1, (-1, 16))
        scale, zero = calculate_qparams(blocks.amin(-1), blocks.amax(-1), args, divisor)
        theirs = ct_fake(x, scale, zero, args, global_scale=divisor)
        ours = fake_quantize(
            x, recipe=COMPRESSED_TENSORS, tensor_scale=(1 / divisor).reshape(()),
            out=torch.empty_like(x),
        )  # fmt: skip
        assert torch.equal(ours, theirs)


def test_on_float32_the_plain_recipes_agree_but_for_the_last_bit_of_the_tensor_scale() -> None:
    weight = torch.randn(512, 1024) * 0.02
    reference = quantize(weight, recipe=TE)
    for recipe in (MODELOPT, TORCHAO, COMPRESSED_TENSORS):
        other = quantize(weight, recipe=recipe)
        assert torch.equal(other.packed_RC, reference.packed_RC)
        assert torch.equal(other.block_scale_RB.float(), reference.block_scale_RB.float())
        torch.testing.assert_close(other.tensor_scale, reference.tensor_scale, rtol=2e-7, atol=0)


def test_transformer_engine_arithmetic_on_many_tensors() -> None:
    """S, d, e and the code in whole-tensor form, with S itself and one product per block."""
    for weight in bf16_valued(60):
        S = torch.tensor(2688.0) / weight.abs().max()
        blocks = weight.unflatten(1, (-1, 16))
        d = (blocks.abs().amax(-1) * (S * torch.tensor(1 / 6))).clamp(max=448)
        d = d.to(torch.float8_e4m3fn).float()
        e = 1 / (d * (1 / S))
        matrix = quantize(weight, recipe=TE)
        assert torch.equal(matrix.tensor_scale, 1 / S)
        assert torch.equal(matrix.block_scale_RB.float(), d)
        assert torch.equal(matrix.packed_RC, pack(encode(blocks * e.unsqueeze(-1)).flatten(1)))


def test_transformer_engine_arithmetic_step_by_step() -> None:
    """S, d, e and the code as its documentation states them, one element at a time."""
    torch.manual_seed(4)
    weight = torch.randn(4, 64) * 0.3
    weight[1, 16:32] = 0
    matrix = quantize(weight, recipe=TE)
    S = torch.tensor(2688.0) / weight.abs().max()
    assert torch.equal(matrix.tensor_scale, 1 / S)
    for row in range(4):
        for block in range(4):
            x = weight[row, block * 16 : block * 16 + 16]
            d = (x.abs().max() * (S * torch.tensor(1 / 6))).to(torch.float8_e4m3fn)
            assert matrix.block_scale_RB[row, block].float() == d.float()
            decoded = dequantize(matrix)[row, block * 16 : block * 16 + 16]
            if d.float() == 0:
                assert (decoded == 0).all()
                continue
            ratio = (x * (1 / (d.float() * (1 / S)))).clamp(-6, 6)
            levels = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
            distance = (decoded / (d.float() / S) - ratio).abs()
            best = (ratio.abs().unsqueeze(-1) - levels).abs().amin(-1)
            torch.testing.assert_close(distance, best, rtol=0, atol=1e-5)


@given(st.floats(2.0**-100, 2.0**100, width=32))
def test_the_power_of_two_is_the_smallest_that_is_not_below(value: float) -> None:
    power = power_of_two_at_least(torch.tensor(value)).item()
    assert power / 2 < value <= power


def test_an_unknown_recipe_is_refused_with_the_names_of_the_known() -> None:
    with pytest.raises(ConfigError, match="fourge"):
        recipe_named("magic")
    assert recipe_named("te") is RECIPES["te"]
