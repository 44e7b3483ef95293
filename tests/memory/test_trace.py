from typing import Any

import pytest
import torch

from fourge.memory import trace as module
from fourge.memory.live import LiveBytes
from fourge.memory.trace import Traced, meta_model, trace
from fourge.nvfp4 import compiled
from fourge.nvfp4.packed import PackedWeight
from fourge.train.loss import Weights, head_loss
from fourge.train.prepare import prepare_
from fourge.train.recompute import RECOMPUTE
from tests.conftest import tiny_model
from tests.memory.samples import wanted

FAMILIES = [("qwen3", True), ("llama", False), ("gemma3_text", True)]


@pytest.fixture(autouse=True)
def _plain_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_can_compile", lambda device: False)


@pytest.mark.parametrize("recompute", RECOMPUTE)
@pytest.mark.parametrize(("family", "tied"), FAMILIES)
def test_a_real_forward_pass_keeps_what_the_trace_says(
    family: str, tied: bool, recompute: Any
) -> None:
    asked = wanted(family, tied=tied, batch=2, recompute=recompute)
    model = tiny_model(family, tied=tied, dtype=torch.bfloat16)
    prepare_(model, compute_dtype=torch.float32, recompute=recompute)
    token_BT = torch.randint(300, (2, 16))
    for _ in range(2):  # the first makes codes and scratch
        with LiveBytes(module.there(model, torch.float32)) as live:
            hidden_BTH = model.base_model(input_ids=token_BT, use_cache=False).last_hidden_state
            kept = live.now.total
            target_T = torch.arange(32)
            head_loss(hidden_BTH.flatten(0, 1)[target_T], model.get_output_embeddings(), target_T,
                      Weights(1.0))  # fmt: skip
            head = live.lap().total
            del hidden_BTH
    traced = trace(asked)
    # Positions and masks are made of other ops on another device: some bytes per token.
    assert traced.kept.total == pytest.approx(kept, rel=0.01, abs=4096)
    assert traced.head.total == pytest.approx(head, rel=0.02, abs=8192)


@pytest.mark.parametrize("recompute", RECOMPUTE)
@pytest.mark.parametrize("release", [True, False])
def test_a_layer_adds_what_the_difference_of_one_and_two_says(
    recompute: Any, release: bool
) -> None:
    asked = wanted(layers=5, recompute=recompute, release=release)
    assert trace(asked) == module._traced(asked, 5)


def test_more_is_kept_with_less_recompute() -> None:
    kept = [trace(wanted(recompute=how, tokens=64)).kept.total for how in RECOMPUTE]
    assert kept == sorted(kept)
    assert kept[0] * 4 < kept[2]


def test_all_gradients_stay_without_release() -> None:
    asked = wanted(layers=4)
    with_release, without = trace(asked), trace(wanted(layers=4, release=False))
    weights = sum(p.numel() for p in meta_model(asked, 4).parameters())
    assert without.embedding.total - with_release.embedding.total > weights  # bf16: 2 each
    assert without.kept == with_release.kept


def test_only_the_trained_layers_keep_anything() -> None:
    def kept(last_layers: int | None) -> int:
        return trace(wanted(layers=6, last_layers=last_layers, recompute="none")).kept.total

    assert kept(1) < kept(3) < kept(6) <= kept(None)
    assert kept(3) - kept(2) == kept(6) - kept(5)


def test_padding_costs_a_mask_and_a_teacher_its_rows() -> None:
    plain = trace(wanted(batch=4, tokens=64))
    masked = trace(wanted(batch=4, tokens=64, padded=True))
    assert masked.forward.total - plain.forward.total >= 4 * 64 * 64
    taught = trace(wanted(taught_positions=100, top_k=8))
    assert taught.head.total > trace(wanted()).head.total


def test_a_smaller_chunk_of_the_loss_needs_less() -> None:
    heads = [trace(wanted(tokens=512, loss_chunk=chunk)).head.total for chunk in (256, 64)]
    assert heads[1] < heads[0]


def test_rounded_activations_are_a_second_copy() -> None:
    kept = {s: trace(wanted(scheme=s, recompute="none")).kept.total for s in ("w4a16", "w4a4")}
    assert kept["w4a4"] > kept["w4a16"]


def test_the_model_has_its_training_form_and_no_memory() -> None:
    model = meta_model(wanted(master="nvfp4"), 1)
    packed = [p for p in model.parameters() if isinstance(p, PackedWeight)]
    assert len(packed) == 7
    assert all(p.is_meta for p in model.parameters())
    assert all(b.is_meta for b in model.buffers())
    assert isinstance(trace(wanted(master="nvfp4")), Traced)


def test_attention_is_put_back() -> None:
    before = torch.nn.functional.scaled_dot_product_attention
    trace(wanted())
    assert torch.nn.functional.scaled_dot_product_attention is before
