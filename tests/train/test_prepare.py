from typing import Any

import pytest
import torch
from torch import nn

from fourge.core.errors import ConfigError
from fourge.model.mixed import MixedLinear
from fourge.model.swap import nvfp4_layers
from fourge.nvfp4.matrix import Nvfp4Matrix, dequantize
from fourge.nvfp4.packed import PackedWeight
from fourge.train.loss import Weights
from fourge.train.prepare import prepare_, storage_dtype
from fourge.train.step import batch_loss
from tests.conftest import tiny_model
from tests.train.samples import batch_of, prepared, values

LAYERS, IN_LAYER = 2, 7  # linear layers of each block


def test_by_default_every_linear_layer_but_the_head_computes_in_nvfp4() -> None:
    model, named = prepared("llama", tied=False)
    layers = nvfp4_layers(model)
    assert len(layers) == LAYERS * IN_LAYER
    assert {layer.scheme for layer in layers.values()} == {"w4a16"}
    assert isinstance(model.lm_head, MixedLinear)
    assert [name for name, _ in named] == [name for name, _ in model.named_parameters()]
    assert all(parameter.dtype == torch.bfloat16 for _, parameter in named)
    assert model.training
    assert model.config.use_cache  # it is exported with the model


def test_without_a_scheme_nothing_is_quantised() -> None:
    model, named = prepared("llama", tied=False, scheme="none", master="fp32")
    assert not nvfp4_layers(model)
    assert all(parameter.dtype == torch.float32 for _, parameter in named)


def test_w4a4_layers_wait_for_their_input_scales() -> None:
    model, _ = prepared("llama", tied=False, scheme="w4a4")
    assert {layer.scheme for layer in nvfp4_layers(model).values()} == {"w4a4"}
    with pytest.raises(ConfigError, match="no input scale"):
        batch_loss(model, batch_of([8]), Weights(1.0))


def test_a_tied_weight_is_trained_once() -> None:
    model, named = prepared("qwen3", tied=True)
    assert model.lm_head.weight is model.base_model.embed_tokens.weight
    assert sum(parameter is model.lm_head.weight for _, parameter in named) == 1


def test_the_keep_list_is_kept() -> None:
    keep = ("embed_tokens", "lm_head", "norm", "down_proj", "layers.0.self_attn")
    layers = nvfp4_layers(prepared("llama", tied=False, keep=keep)[0])
    assert not any("down_proj" in name or "layers.0.self_attn" in name for name in layers)
    assert len(layers) == LAYERS * IN_LAYER - LAYERS - 4
    assert "lm_head" in nvfp4_layers(prepared("llama", tied=False, keep=("norm",))[0])


def test_a_name_to_keep_that_no_layer_has_is_refused() -> None:
    with pytest.raises(ConfigError, match="dwon_proj"):
        prepared("llama", tied=False, keep=("lm_head", "dwon_proj"))


@pytest.mark.parametrize(
    ("stored", "compute"),
    [(torch.float32, torch.float32), (torch.bfloat16, torch.float32),
     (torch.bfloat16, torch.bfloat16), (torch.float32, torch.bfloat16)],
)  # fmt: skip
def test_states_have_the_dtype_that_is_computed_in(
    stored: torch.dtype, compute: torch.dtype
) -> None:
    model = tiny_model("qwen3", tied=True, dtype=stored)
    prepare_(model, scheme="none", compute_dtype=compute)
    output = model.base_model(batch_of([8]).token_BT)
    assert output.last_hidden_state.dtype == compute


def test_the_dtype_to_load_in_is_the_master_s() -> None:
    assert storage_dtype("fp32") == torch.float32
    for master in ("bf16", "bf16+8", "nvfp4"):
        assert storage_dtype(master) == torch.bfloat16


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("count", [1, 2])
def test_only_the_last_layers_and_the_final_norm_are_trained(count: int, tied: bool) -> None:
    model, named = prepared("llama", tied=tied, last_layers=count)
    batch = batch_of([12, 9])
    batch_loss(model, batch, Weights(1 / batch.targets)).total.backward()
    trained = {name for name, _ in named}
    expected = {"model.norm.weight"} | {
        name
        for name, _ in model.named_parameters()
        if any(f"layers.{LAYERS - 1 - back}." in name for back in range(count))
    }
    assert trained == expected
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad == (name in trained), name
        assert (parameter.grad is not None) == (name in trained), name


def test_frozen_layers_keep_no_activations(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = prepared("llama", tied=False, last_layers=1, recompute="none")
    kept: list[int] = []

    def watch(layer: nn.Module, args: Any, output: Any) -> None:
        state = output[0] if isinstance(output, tuple) else output
        kept.append(state.requires_grad)

    for layer in model.base_model.layers:
        layer.register_forward_hook(watch)
    batch_loss(model, batch_of([12]), Weights(1.0))
    assert kept == [False, True]


@pytest.mark.parametrize("count", [0, 3, -1])
def test_a_number_of_layers_that_the_model_has_not_is_refused(count: int) -> None:
    with pytest.raises(ConfigError, match=f"last_layers is {count}; the model has 2") as caught:
        prepared("llama", tied=False, last_layers=count)
    assert "from 1 to 2" in caught.value.fix


@pytest.mark.parametrize("name", ["final_logit_softcapping", "logit_scale", "logits_scaling"])
def test_what_a_config_does_to_logits_after_the_head_is_refused(name: str) -> None:
    model = tiny_model("llama")
    setattr(model.config, name, 30.0)
    with pytest.raises(ConfigError, match=f"sets {name} to 30.0"):
        prepare_(model)
    assert not nvfp4_layers(model)
    for harmless in (None, 1.0):
        model = tiny_model("llama")
        setattr(model.config, name, harmless)
        prepare_(model)


def test_a_head_with_a_bias_is_refused() -> None:
    model = tiny_model("llama")
    model.lm_head = nn.Linear(64, 300, bias=True)
    with pytest.raises(ConfigError, match="head has a bias"):
        prepare_(model)


def test_dropout_is_refused() -> None:
    model = tiny_model("llama")
    model.config.attention_dropout = 0.1
    with pytest.raises(ConfigError, match=r"attention_dropout to 0\.1"):
        prepare_(model)


def test_a_model_that_is_nvfp4_already_stays_what_it_is() -> None:
    model, _ = prepared("llama", tied=False)
    for other in ("w4a4", "none"):
        with pytest.raises(ConfigError, match="NVFP4 already, w4a16"):
            prepare_(model, scheme=other)
    prepare_(model)


def test_a_tied_head_cannot_be_packed() -> None:
    with pytest.raises(ConfigError, match="cannot be packed"):
        prepared("llama", tied=True, master="nvfp4", keep=("embed_tokens", "norm"))


def test_with_nvfp4_masters_the_pack_is_all_there_is() -> None:
    before = values(tiny_model("llama", dtype=torch.bfloat16))
    model, named = prepared("llama", tied=False, master="nvfp4")
    layers = nvfp4_layers(model)
    packed = {name: p for name, p in named if isinstance(p, PackedWeight)}
    assert packed.keys() == {f"{name}.weight" for name in layers}
    for name, weight in packed.items():
        matrix = weight.matrix
        parts = (matrix.packed_RC, matrix.block_scale_RB, matrix.tensor_scale)
        assert sum(part.nbytes for part in parts) == Nvfp4Matrix.nbytes_for(*weight.shape)
        assert weight.untyped_storage().nbytes() <= 4
        error = (dequantize(matrix) - before[name].float()).norm() / before[name].float().norm()
        assert error < 0.12, name
    q, k, v = (layers[f"model.layers.0.self_attn.{name}_proj"].codes() for name in "qkv")
    assert q.tensor_scale == k.tensor_scale == v.tensor_scale
