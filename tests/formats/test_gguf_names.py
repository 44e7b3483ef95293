import pytest
import torch

from fourge.core.errors import FormatError
from fourge.formats.gguf_names import from_transformers, to_transformers
from fourge.formats.stored import Stored, in_memory
from fourge.nvfp4.matrix import dequantize, quantize
from tests.conftest import tiny_model

GGUF_NAME = {"llama": "llama", "qwen3": "qwen3", "gemma3": "gemma3_text"}


def tensors_of(family: str) -> dict[str, Stored]:
    return {n: in_memory(p.detach()) for n, p in tiny_model(family).named_parameters()}


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "gemma3"])
def test_there_and_back_is_the_identity(architecture: str) -> None:
    tensors = tensors_of(GGUF_NAME[architecture])
    renamed = from_transformers(tensors, architecture, 4, 2)
    assert "blk.1.ffn_down.weight" in renamed
    assert "token_embd.weight" in renamed
    back = to_transformers(renamed, architecture, 4, 2)
    assert set(back) == set(tensors)
    for name, stored in tensors.items():
        torch.testing.assert_close(back[name].dense(), stored.dense(), rtol=0, atol=1e-6)


def test_llama_interleaves_the_halves_of_each_head() -> None:
    weight = torch.arange(16.0).unsqueeze(1).repeat(1, 16)  # row r holds r; 2 heads of 8 rows
    stored = {"model.layers.0.self_attn.q_proj.weight": in_memory(weight)}
    (renamed,) = from_transformers(stored, "llama", 2, 2).values()
    assert renamed.dense()[:, 0].tolist() == [0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15]
    (qwen,) = from_transformers(stored, "qwen3", 2, 2).values()
    assert torch.equal(qwen.dense(), weight)


def test_codes_and_scales_move_with_their_rows() -> None:
    matrix = quantize(torch.randn(16, 32))
    stored = {"model.layers.0.self_attn.k_proj.weight": in_memory(matrix)}
    (renamed,) = from_transformers(stored, "llama", 4, 2).values()
    dense = {"model.layers.0.self_attn.k_proj.weight": in_memory(dequantize(matrix))}
    (expected,) = from_transformers(dense, "llama", 4, 2).values()
    assert torch.equal(dequantize(renamed.matrix()), expected.dense())


def test_gemma_norms_are_stored_with_the_one_added() -> None:
    stored = {"model.norm.weight": in_memory(torch.tensor([0.5, -1.0]))}
    (renamed,) = from_transformers(stored, "gemma3", 1, 1).values()
    assert renamed.dense().tolist() == [1.5, 0.0]


def test_names_that_have_no_place_are_refused() -> None:
    with pytest.raises(FormatError, match="rope_freqs"):
        to_transformers({"rope_freqs.weight": in_memory(torch.ones(4))}, "llama", 1, 1)
    with pytest.raises(FormatError, match="adapter"):
        from_transformers({"adapter.weight": in_memory(torch.ones(4))}, "llama", 1, 1)


def test_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(FormatError, match="rwkv"):
        to_transformers({}, "rwkv", 1, 1)
