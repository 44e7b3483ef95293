import pytest
import torch
from torch import Tensor

from fourge.core.errors import FormatError
from fourge.formats.layout import (
    COMPRESSED_TENSORS,
    DAT,
    MODELOPT,
    Layout,
    announced,
    detect,
    join,
    parts,
)
from fourge.formats.stored import NVFP4, Stored, in_memory
from fourge.nvfp4.matrix import Nvfp4Matrix, dequantize, quantize


def split(layout: Layout, matrix: Nvfp4Matrix) -> dict[str, Stored]:
    stored = in_memory(matrix)
    names = [record.name for record in announced("m.q_proj.weight", stored, layout)]
    values = parts("m.q_proj.weight", stored, layout)
    return {name: in_memory(value) for name, value in zip(names, values, strict=True)}


@pytest.mark.parametrize("layout", [COMPRESSED_TENSORS, MODELOPT, DAT], ids=lambda x: x.name)
def test_joining_undoes_splitting(layout: Layout) -> None:
    matrix = quantize(torch.randn(4, 32))
    pieces = split(layout, matrix) | {"m.norm.weight": in_memory(torch.ones(3))}
    joined = join(pieces, layout)
    assert set(joined) == {"m.q_proj.weight", "m.norm.weight"}
    again = joined["m.q_proj.weight"].matrix()
    assert torch.equal(again.packed_RC, matrix.packed_RC)
    assert torch.equal(again.tensor_scale, matrix.tensor_scale)
    assert joined["m.q_proj.weight"].shape == (4, 32)
    assert joined["m.q_proj.weight"].kind == NVFP4


def test_compressed_tensors_stores_the_divisor_with_one_axis() -> None:
    matrix = quantize(torch.randn(4, 32))
    scale = split(COMPRESSED_TENSORS, matrix)["m.q_proj.weight_global_scale"].dense()
    assert scale.shape == (1,)
    assert scale.item() == 1 / matrix.tensor_scale.item()


def test_modelopt_stores_the_multiplier_as_a_scalar() -> None:
    matrix = quantize(torch.randn(4, 32))
    scale = split(MODELOPT, matrix)["m.q_proj.weight_scale_2"].dense()
    assert scale.shape == ()
    assert scale.item() == matrix.tensor_scale.item()


def test_input_scales_follow_the_direction_of_the_layout() -> None:
    stored = in_memory(torch.tensor(0.25))
    (record,) = announced("m.q_proj.input_scale", stored, COMPRESSED_TENSORS)
    (value,) = parts("m.q_proj.input_scale", stored, COMPRESSED_TENSORS)
    assert record.name == "m.q_proj.input_global_scale"
    assert value.tolist() == [4.0]
    joined = join({record.name: in_memory(value)}, COMPRESSED_TENSORS)
    assert joined["m.q_proj.input_scale"].dense().item() == 0.25


def test_the_layout_is_found_by_names() -> None:
    matrix = quantize(torch.randn(1, 16))
    assert detect(split(COMPRESSED_TENSORS, matrix)) is COMPRESSED_TENSORS
    assert detect(split(MODELOPT, matrix)) is MODELOPT
    assert detect({"m.weight": in_memory(torch.ones(2))}) is None


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_scale_that_is_none_is_refused(value: float) -> None:
    pieces = split(MODELOPT, quantize(torch.randn(1, 16)))
    pieces["m.q_proj.weight_scale_2"] = in_memory(torch.tensor(value))
    with pytest.raises(FormatError, match="not a scale"):
        join(pieces, MODELOPT)["m.q_proj.weight"].read()


def test_a_missing_piece_is_refused_by_name() -> None:
    pieces = split(COMPRESSED_TENSORS, quantize(torch.randn(1, 16)))
    del pieces["m.q_proj.weight_global_scale"]
    with pytest.raises(FormatError, match=r"weight_global_scale is missing"):
        join(pieces, COMPRESSED_TENSORS)


@pytest.mark.parametrize("wrong", [torch.zeros(2, 2), torch.zeros(2, 1, dtype=torch.uint8)])
def test_block_scales_of_the_wrong_kind_or_shape_are_refused(wrong: Tensor) -> None:
    pieces = split(MODELOPT, quantize(torch.randn(2, 32)))
    pieces["m.q_proj.weight_scale"] = in_memory(wrong)
    with pytest.raises(FormatError, match="q_proj"):
        join(pieces, MODELOPT)


def test_without_tensor_scale_it_is_one_where_that_is_allowed() -> None:
    matrix = quantize(torch.randn(2, 32), tensor_scale=torch.ones(()))
    pieces = split(DAT, matrix)
    del pieces["m.q_proj.weight.scale_2"]
    again = join(pieces, DAT, optional_scale=True)["m.q_proj.weight"].matrix()
    assert torch.equal(dequantize(again), dequantize(matrix))
    with pytest.raises(FormatError, match="missing"):
        join(pieces, DAT)
