from typing import Any

import pytest
import torch
from torch import nn

import fourge
from fourge.core.errors import ConfigError, FormatError
from fourge.model import swap
from fourge.model.swap import (
    KEEP_BF16,
    is_kept,
    nvfp4_layers,
    quantize_,
    scale_groups,
    scale_groups_of,
)
from fourge.nvfp4.matrix import dequantize
from tests.conftest import tiny_model

FAMILIES = ["qwen3", "llama", "gemma3_text", "qwen2", "mistral"]
TOKENS = torch.tensor([[5, 80, 33, 200, 17, 4, 99, 250]])


def dense_twin(model: Any, family: str) -> Any:
    """A plain model whose weights are the decoded codes of a quantised one."""
    twin = tiny_model(family)
    for name, layer in nvfp4_layers(model).items():
        with torch.no_grad():
            twin.get_submodule(name).weight.copy_(dequantize(layer.codes()))
    return twin


@pytest.mark.parametrize("family", FAMILIES)
def test_a_quantised_model_computes_with_its_codes(family: str) -> None:
    model = tiny_model(family)
    report = quantize_(model)
    assert len(report.quantized) == 14
    assert report.kept == ("lm_head",)
    twin, many = dense_twin(model, family), TOKENS.repeat(8, 1)
    with torch.no_grad():
        assert torch.equal(model(many).logits, twin(many).logits)
        few, theirs = model(TOKENS).logits, twin(TOKENS).logits  # summed in another order
        torch.testing.assert_close(few, theirs, rtol=0, atol=1e-5 * theirs.abs().max().item())


@pytest.mark.parametrize("family", ["qwen3", "gemma3_text"])
def test_every_parameter_gets_a_gradient(family: str) -> None:
    model = tiny_model(family, tied=True)
    quantize_(model)
    model(TOKENS, labels=TOKENS).loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_fused_layers_share_one_tensor_scale() -> None:
    model = tiny_model("llama")
    quantize_(model)
    attention, mlp = model.model.layers[0].self_attn, model.model.layers[0].mlp
    q, k, v = (getattr(attention, n).codes().tensor_scale for n in ("q_proj", "k_proj", "v_proj"))
    assert torch.equal(q, k)
    assert torch.equal(q, v)
    assert attention.q_proj.group is attention.v_proj.group
    assert mlp.gate_proj.group is mlp.up_proj.group
    assert mlp.down_proj.group is not mlp.up_proj.group
    assert len(scale_groups_of(model)) == 2 * 4


def test_the_keep_list_is_obeyed() -> None:
    model = tiny_model("qwen3")
    report = quantize_(model, keep=[*KEEP_BF16, "down_proj", "model.layers.0.self_attn.q_proj"])
    assert "model.layers.1.mlp.down_proj" in report.kept
    assert "model.layers.0.self_attn.q_proj" in report.kept
    assert "model.layers.1.self_attn.q_proj" in report.quantized
    assert "kept: " in str(report)


def test_a_name_is_kept_by_whole_parts_only() -> None:
    assert is_kept("model.layers.3.mlp.up_proj", ["up_proj"])
    assert is_kept("lm_head", ["lm_head"])
    assert is_kept("model.layers.3.mlp.up_proj", ["model.layers.3.mlp.up_proj"])
    assert is_kept("model.layers.1.mlp.up_proj", ["model.layers.1"])
    assert is_kept("model.layers.1.mlp.up_proj", ["layers.1."])
    assert not is_kept("model.layers.13.mlp.up_proj", ["layers.1", "up"])


def test_groups_are_found_by_name() -> None:
    names = ["a.q_proj", "a.k_proj", "a.v_proj", "a.o_proj", "b.gate_proj", "b.up_proj", "q_proj"]
    groups = list(scale_groups(names))
    assert groups == [
        ("a.q_proj", "a.k_proj", "a.v_proj"),
        ("a.o_proj",),
        ("b.gate_proj", "b.up_proj"),
        ("q_proj",),
    ]


def test_ties_and_optimizers_survive_the_swap() -> None:
    model = tiny_model("qwen3", tied=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    quantize_(model, keep=["embed_tokens"])  # the head too, which is the embedding
    assert model.lm_head.weight is model.model.embed_tokens.weight
    before = {name: layer.codes().packed_RC.clone() for name, layer in nvfp4_layers(model).items()}
    model(TOKENS, labels=TOKENS).loss.backward()
    optimizer.step()
    changed = [n for n, layer in nvfp4_layers(model).items()
               if not torch.equal(before[n], layer.codes().packed_RC)]  # fmt: skip
    assert len(changed) == len(before) == 15


def test_recompute_changes_no_bit() -> None:
    losses = []
    for recompute in (False, True):
        model = tiny_model("qwen3")
        quantize_(model)
        model.train()
        if recompute:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        model(TOKENS, labels=TOKENS).loss.backward()
        losses.append({n: p.grad for n, p in model.named_parameters()})
    for name, grad in losses[0].items():
        assert torch.equal(grad, losses[1][name]), name


def test_a_layer_that_does_not_divide_is_refused_by_name() -> None:
    model = nn.Sequential(nn.Linear(16, 24), nn.Linear(24, 16))
    with pytest.raises(FormatError, match="1 is 16 x 24"):
        quantize_(model)
    assert all(type(module) is nn.Linear for module in model)


@pytest.mark.parametrize(
    "wrong", [{"scheme": "w8a8"}, {"backend": "magic"}, {"keep": ["0"]}, {"backend": "fp4"}]
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        quantize_(nn.Sequential(nn.Linear(16, 16)), **wrong)


def test_the_package_offers_it_at_the_top() -> None:
    assert fourge.quantize_ is quantize_
    with pytest.raises(AttributeError):
        _ = fourge.nothing


def test_a_step_computes_in_bf16_where_that_is_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    for known, dtype in (
        ({"avx512_bf16": True}, torch.bfloat16),
        ({"amx_bf16": True, "avx512_bf16": False}, torch.bfloat16),
        ({"avx2": True, "avx512_f": True}, torch.float32),
    ):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda known=known: known)
        swap.multiplies_bf16.cache_clear()
        assert swap.training_dtype("auto", cpu) == dtype
        assert swap.training_dtype("auto", cuda) == torch.bfloat16
        assert swap.training_dtype("float32", cuda) == torch.float32
        assert swap.training_dtype("bfloat16", cpu) == torch.bfloat16
    swap.multiplies_bf16.cache_clear()
