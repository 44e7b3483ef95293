import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from fourge.core.errors import FormatError
from fourge.formats.stored import in_memory
from fourge.model.build import empty_model, load_model, matched, untied
from fourge.model.source import Source, open_source
from tests.conftest import byte_tokenizer, tiny_config, tiny_model

TOKENS = torch.tensor([[5, 80, 33, 200, 17, 4, 99, 250]])


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", ["qwen3", "llama", "gemma3_text"])
def test_a_folder_loads_as_transformers_loads_it(
    tiny_folder: Callable[..., Path], family: str, tied: bool
) -> None:
    from transformers import AutoModelForCausalLM

    folder = tiny_folder(family, tied=tied)
    ours = load_model(open_source(folder), dtype=torch.float32)
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert {n for n, _ in ours.named_parameters()} == {n for n, _ in theirs.named_parameters()}
    with torch.no_grad():
        assert torch.equal(ours(TOKENS).logits, theirs(TOKENS).logits)


def test_bf16_is_kept_when_asked_for(tiny_folder: Callable[..., Path]) -> None:
    model = load_model(open_source(tiny_folder("qwen3")), dtype=torch.bfloat16)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


def test_each_tensor_is_told_of(tiny_folder: Callable[..., Path]) -> None:
    told: list[str] = []
    model = load_model(open_source(tiny_folder("llama")), progress=told.append)
    assert sorted(told) == sorted(n for n, _ in model.named_parameters())


def altered(folder: Path, **changes: torch.Tensor | None) -> Source:
    source = open_source(folder)
    tensors = dict(source.tensors)
    for name, value in changes.items():
        key = name.replace("__", ".")
        tensors.pop(key, None)
        if value is not None:
            tensors[key] = in_memory(value)
    return replace(source, tensors=tensors)


def test_a_missing_tensor_is_refused_by_name(tiny_folder: Callable[..., Path]) -> None:
    source = altered(tiny_folder("qwen3"), model__norm__weight=None)
    with pytest.raises(FormatError, match=r"missing: model\.norm\.weight"):
        load_model(source)


def test_an_extra_tensor_is_refused_by_name(tiny_folder: Callable[..., Path]) -> None:
    source = altered(tiny_folder("qwen3"), stowaway=torch.zeros(3))
    with pytest.raises(FormatError, match="left over: stowaway"):
        load_model(source)


def test_an_input_scale_without_its_nvfp4_weight_is_left_over(
    tiny_folder: Callable[..., Path],
) -> None:
    source = altered(tiny_folder("qwen3"), lm_head__input_scale=torch.ones(()))
    with pytest.raises(FormatError, match=r"left over: lm_head\.input_scale"):
        load_model(source)


def test_one_column_takes_the_shape_of_the_model(tiny_folder: Callable[..., Path]) -> None:
    """As bitsandbytes' NF4 files keep their weights."""
    name = "model.layers.0.mlp.up_proj.weight"
    folder = tiny_folder("qwen3")
    value = open_source(folder).tensors[name].dense()
    source = altered(folder, **{name.replace(".", "__"): value.flatten()})
    assert matched(empty_model(source.config, torch.float32), source.tensors)[name].shape == (
        128,
        64,
    )
    assert torch.equal(load_model(source).get_parameter(name), value.float())


def test_a_misshapen_tensor_is_refused_by_name(tiny_folder: Callable[..., Path]) -> None:
    source = altered(tiny_folder("qwen3"), model__norm__weight=torch.zeros(65))
    with pytest.raises(FormatError, match=r"model\.norm\.weight has shape \(65,\)"):
        load_model(source)


def test_a_weight_that_is_not_finite_is_refused_by_name(tiny_folder: Callable[..., Path]) -> None:
    source = altered(tiny_folder("qwen3"), model__norm__weight=torch.full((64,), float("nan")))
    with pytest.raises(FormatError, match=r"model\.norm\.weight has a value that is not finite"):
        load_model(source)


def test_fused_experts_are_refused_with_a_sentence() -> None:
    from transformers import AutoConfig

    config = AutoConfig.for_model(
        "qwen3_moe", hidden_size=64, intermediate_size=64, moe_intermediate_size=32,
        num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
        num_experts=4, num_experts_per_tok=2, vocab_size=300,
    )  # fmt: skip
    with pytest.raises(FormatError, match="experts in one 3-D parameter"):
        empty_model(config, torch.float32)


def test_a_config_that_cannot_be_built_is_refused() -> None:
    config = tiny_config("qwen3", tied=False)
    config.hidden_act = "no such function"
    with pytest.raises(FormatError, match="cannot build"):
        empty_model(config, torch.float32)


def test_a_head_written_twice_is_left_to_the_embedding(tiny_folder: Callable[..., Path]) -> None:
    folder = tiny_folder("qwen3", tied=True)
    embedding = open_source(folder).tensors["model.embed_tokens.weight"].dense()
    same = altered(folder, lm_head__weight=embedding.clone())
    assert "lm_head.weight" not in untied(same).tensors
    other = altered(folder, lm_head__weight=embedding * 2)
    assert "lm_head.weight" in untied(other).tensors
    assert other.config.tie_word_embeddings is True  # the source is left as it was
    model = load_model(other)
    assert model.lm_head.weight is not model.model.embed_tokens.weight


def test_parameters_without_memory_until_they_are_filled() -> None:
    model = empty_model(tiny_config("llama", tied=True), torch.bfloat16)
    assert all(p.is_meta for p in model.parameters())
    assert not any(b.is_meta for b in model.buffers())
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_names_are_compared_before_anything_is_read() -> None:
    model = nn.Linear(3, 2)
    with pytest.raises(FormatError, match="missing: bias"):
        matched(model, {"weight": in_memory(torch.zeros(2, 3))})


@pytest.mark.slow
def test_loading_peaks_within_15_percent_of_the_finished_model(
    tiny_folder: Callable[..., Path], tmp_path: Path
) -> None:
    """210 MB of weights in many tensors, in a process of its own."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        "qwen3", hidden_size=512, intermediate_size=1536, num_hidden_layers=16,
        num_attention_heads=8, num_key_value_heads=4, head_dim=64, vocab_size=2048,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    small = str(tiny_folder("qwen3"))
    command = [sys.executable, "-m", "tests.model.measure_load", small, str(tmp_path)]
    root = Path(__file__).parents[2]
    out = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    peak, model = map(int, out.stdout.split()[-2:])
    assert model > 200e6
    assert model < peak <= 1.15 * model, f"peak {peak / 1e6:.0f} MB for {model / 1e6:.0f} MB"


def test_the_tiny_model_is_the_same_every_time() -> None:
    one, two = tiny_model("qwen3").state_dict(), tiny_model("qwen3").state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_the_loader_holds_one_tensor_unless_it_is_read_into_its_place(
    tiny_folder: Callable[..., Path],
) -> None:
    from fourge.model.build import loader_nbytes
    from fourge.model.embedded import EMBEDDED

    source = open_source(tiny_folder("llama"))
    assert loader_nbytes(source, torch.bfloat16) == 0
    assert loader_nbytes(source, torch.float32) == 2 * 300 * 64
    quantized = open_source(EMBEDDED)
    widest = quantized.tensors["model.embed_tokens.weight"]
    assert loader_nbytes(quantized, torch.bfloat16) == widest.nbytes + 4 * 49152 * 576
