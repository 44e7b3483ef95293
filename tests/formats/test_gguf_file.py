from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from fourge.core.errors import FormatError
from fourge.formats.gguf_file import from_runs, read_gguf, to_runs
from fourge.formats.gguf_write import write_gguf
from fourge.formats.stored import NVFP4, in_memory
from fourge.nvfp4.matrix import Nvfp4Matrix, dequantize, quantize
from fourge.nvfp4.recipe import TE

QUANTS = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]


def test_runs_and_matrices_are_inverse() -> None:
    matrix = quantize(torch.randn(5, 128))
    runs = to_runs(matrix)
    assert runs.shape == (5, 2 * 36)
    again = from_runs(runs.flatten(), (5, 128))
    assert torch.equal(again.packed_RC, matrix.packed_RC)
    assert torch.equal(again.block_scale_RB.float(), matrix.block_scale_RB.float())


def test_the_gguf_package_decodes_our_runs() -> None:
    for recipe_std in (1e-6, 0.02, 1e4):
        matrix = quantize(torch.randn(3, 192) * recipe_std, recipe=TE)
        raw = to_runs(matrix).numpy()
        decoded = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType.NVFP4)
        unit = Nvfp4Matrix(matrix.packed_RC, matrix.block_scale_RB, torch.ones(()))
        assert np.array_equal(decoded, dequantize(unit).numpy())


@pytest.mark.parametrize("kind", QUANTS)
def test_quantised_tensors_are_read_as_the_gguf_package_decodes_them(
    tmp_path: Path, kind: str
) -> None:
    values = np.random.default_rng(0).normal(size=(4, 256)).astype(np.float32)
    quant = gguf.GGMLQuantizationType[kind]
    raw = gguf.quants.quantize(values, quant)
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_tensor("w", raw, raw_dtype=quant)
    writer.add_tensor("f", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    metadata, tensors = read_gguf(tmp_path / "a.gguf")
    assert metadata["general.architecture"] == "llama"
    assert tensors["w"].kind == kind.lower()
    assert tensors["w"].shape == (4, 256)
    assert np.array_equal(tensors["w"].dense().numpy(), gguf.quants.dequantize(raw, quant))
    assert np.array_equal(tensors["f"].dense().numpy(), values)


@pytest.mark.parametrize("kind", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL"])
def test_k_quants_are_read_too(tmp_path: Path, kind: str) -> None:
    quant = gguf.GGMLQuantizationType[kind]
    block, block_bytes = gguf.GGML_QUANT_SIZES[quant]
    raw = np.random.default_rng(1).integers(0, 60, (2, 512 // block * block_bytes), dtype=np.uint8)
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_tensor("w", raw, raw_dtype=quant)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    _, tensors = read_gguf(tmp_path / "a.gguf")
    assert tensors["w"].shape == (2, 512)
    assert np.array_equal(tensors["w"].dense().numpy(), gguf.quants.dequantize(raw, quant))


def test_metadata_of_every_type_is_read(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_uint8("a", 7)
    writer.add_int64("b", -5)
    writer.add_float32("c", 0.5)
    writer.add_bool("d", True)
    writer.add_string("e", "文字")
    writer.add_array("f", ["x", "yy", ""])
    writer.add_array("g", [1, 2, 3])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    metadata, tensors = read_gguf(tmp_path / "a.gguf")
    del metadata["general.architecture"]
    assert metadata == {"a": 7, "b": -5, "c": 0.5, "d": True, "e": "文字", "f": ["x", "yy", ""],
                        "g": [1, 2, 3]}  # fmt: skip
    assert tensors == {}


def test_the_separate_scale_is_applied(tmp_path: Path) -> None:
    """transformers ignores it, and its weights come out thousands of times too large."""
    matrix = quantize(torch.randn(4, 64) * 1e-3)
    stored = {"blk.0.attn_q.weight": in_memory(matrix)}
    write_gguf(tmp_path / "a.gguf", stored, {"general.architecture": "qwen3"})
    _, tensors = read_gguf(tmp_path / "a.gguf")
    assert list(tensors) == ["blk.0.attn_q.weight"]
    assert tensors["blk.0.attn_q.weight"].kind == NVFP4
    again = tensors["blk.0.attn_q.weight"].matrix()
    assert torch.equal(again.tensor_scale, matrix.tensor_scale)
    assert torch.equal(dequantize(again), dequantize(matrix))


def test_without_a_scale_it_is_one(tmp_path: Path) -> None:
    matrix = quantize(torch.randn(2, 64), tensor_scale=torch.ones(()))
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_tensor("w", to_runs(matrix).numpy(), raw_dtype=gguf.GGMLQuantizationType.NVFP4)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert torch.equal(
        dequantize(read_gguf(tmp_path / "a.gguf")[1]["w"].matrix()), dequantize(matrix)
    )


def test_a_scale_that_gguf_cannot_hold_is_refused() -> None:
    matrix = quantize(torch.randn(1, 64))
    scale = matrix.block_scale_RB.view(torch.uint8).clone()
    scale[0, 0] |= 0x80
    negative = Nvfp4Matrix(matrix.packed_RC, scale.view(torch.float8_e4m3fn), matrix.tensor_scale)
    with pytest.raises(FormatError, match="negative"):
        to_runs(negative)
