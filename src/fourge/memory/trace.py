"""One training step of a model without memory: what each phase of it would hold.

The model is built on the meta device with one layer and with two, put into its training form by
the functions that do it for a real one, and taken through forward, loss and backward under
``LiveBytes``. The difference of the two is what a layer adds; all layers of the models we train
are equal, so the rest is a multiplication. Parameters, codes and moments are not in these
numbers: ``inventory.py`` counts those.

Gradients are dropped as soon as they are complete, as release does; the update itself is not
traced, because its kernels are compiled: its scratch is asked of ``optim.tensor``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fourge.memory.live import Held, LiveBytes, pieces
from fourge.memory.wanted import Wanted, shallow
from fourge.model.build import empty_model
from fourge.model.swap import nvfp4_layers
from fourge.nvfp4.gemm import scratch
from fourge.nvfp4.linear import Nvfp4Linear
from fourge.nvfp4.matrix import Nvfp4Matrix
from fourge.nvfp4.packed import PackedWeight
from fourge.optim.tensor import scratch_nbytes
from fourge.train.loss import Teacher, Weights, head_loss
from fourge.train.prepare import prepare_, storage_dtype

META = torch.device("meta")


@dataclass(frozen=True, slots=True)
class Traced:
    """The most that is alive in each phase, beside weights, codes and moments."""

    kept: Held  # between forward and backward, for the backward pass
    forward: Held
    head: Held
    blocks: Held  # backward through head and blocks
    embedding: Held  # backward at the lookup, when the blocks are done


def trace(wanted: Wanted) -> Traced:
    """A step of the whole model."""
    one, two = _traced(wanted, 1), _traced(wanted, 2)
    layer, more = two.kept - one.kept, wanted.trained_layers - 1
    gradients = Held() if wanted.release else _layer_gradients(wanted)
    # The first block to go backward has all other inputs beside it, the last all gradients.
    blocks = (one.blocks + layer.times(more)).highest(one.blocks + gradients.times(more))
    return Traced(
        kept=one.kept + layer.times(more),
        forward=one.forward + layer.times(more),
        head=one.head + layer.times(more),
        blocks=blocks,
        embedding=one.embedding + gradients.times(more),
    )


def _traced(wanted: Wanted, layers: int) -> Traced:
    model = meta_model(wanted, layers)
    token_BT = torch.empty(wanted.batch, wanted.tokens, dtype=torch.int64, device=META)
    target_T = torch.empty(wanted.positions, dtype=torch.int64, device=META)
    teacher = _teacher(wanted)
    with _fused_attention(), LiveBytes(there(model, wanted.compute)) as live:
        lookup_done: list[Held] = []
        embedding = model.get_input_embeddings()
        handle = embedding.register_forward_hook(partial(_watch, live, lookup_done))
        hidden_BTH = model.base_model(
            input_ids=token_BT, attention_mask=_mask(wanted), use_cache=False
        ).last_hidden_state
        handle.remove()
        forward, kept = live.lap(), live.now
        hidden_TH = hidden_BTH.flatten(0, 1)[target_T]
        loss = head_loss(
            hidden_TH, model.get_output_embeddings(), target_T, Weights(1.0, 1.0), teacher=teacher,
            chunk=wanted.loss_chunk, backward_twice=wanted.two_pass,
        )  # fmt: skip
        del hidden_BTH, hidden_TH
        head = live.lap()
        _on_gradient_(model, wanted, live)
        loss.total.backward()
        last = live.lap()
    blocks = lookup_done[0] if lookup_done else last
    return Traced(kept, forward, head, blocks, last)


def meta_model(wanted: Wanted, layers: int) -> Any:
    """The model in its training form, with so many layers, without memory."""
    model = empty_model(shallow(wanted.config, layers), storage_dtype(wanted.master))
    prepare_(
        model, scheme=wanted.scheme, keep=wanted.keep, backend="dequant",
        compute_dtype=wanted.compute, recompute=wanted.recompute,
        last_layers=None if wanted.last_layers is None else layers,
    )  # fmt: skip
    for name, buffer in list(model.named_buffers()):
        parent, _, child = name.rpartition(".")
        model.get_submodule(parent)._buffers[child] = buffer.to(META)
    for layer in nvfp4_layers(model).values():
        _give_codes_(layer, packed=wanted.master == "nvfp4")
    return model


def _give_codes_(layer: Nvfp4Linear, *, packed: bool) -> None:
    matrix = Nvfp4Matrix.empty(layer.out_features, layer.in_features, META)
    if packed:
        layer.weight = PackedWeight(matrix, requires_grad=layer.weight.requires_grad)
    else:
        layer.keep_codes(matrix, layer.group.versions())
    if layer.scheme == "w4a4":  # rounded activations are a second copy of them
        layer.quantized_input = torch.empty_like  # type: ignore[assignment,method-assign]


def there(model: Any, compute: torch.dtype) -> Iterator[Tensor]:
    """What has lines of its own in the plan: weights, codes, the buffer they are decoded into."""
    yield from model.parameters()
    yield from model.buffers()
    widest = 1
    for layer in nvfp4_layers(model).values():
        yield layer.codes().packed_RC
        yield layer.codes().block_scale_RB
        widest = max(widest, layer.weight.numel())
    yield scratch((1, widest), compute, model.get_input_embeddings().weight.device)


def _mask(wanted: Wanted) -> Tensor | None:
    shape = (wanted.batch, 1, wanted.tokens, wanted.tokens)
    return torch.empty(shape, dtype=torch.bool, device=META) if wanted.padded else None


def _teacher(wanted: Wanted) -> Teacher | None:
    if not wanted.taught_positions:
        return None
    shape = (wanted.positions, wanted.top_k)
    return Teacher(
        torch.empty(shape, dtype=torch.int64, device=META),
        torch.empty(shape, device=META),
        torch.empty(wanted.positions, dtype=torch.bool, device=META),
    )


def _watch(live: LiveBytes, found: list[Held], module: Any, args: Any, output: Tensor) -> None:
    """Have the lookup say when its gradient arrives, which is when the blocks are done."""
    if output.requires_grad:
        output.register_hook(lambda grad: found.append(live.lap()))


def _on_gradient_(model: Any, wanted: Wanted, live: LiveBytes) -> None:
    def complete(param: Tensor) -> None:
        if wanted.release:
            live.briefly(scratch_nbytes(param, wanted.moments, wanted.chunk_rows))
            param.grad = None

    for param in model.parameters():
        if param.requires_grad:
            param.register_post_accumulate_grad_hook(complete)


def _layer_gradients(wanted: Wanted) -> Held:
    layer = empty_model(shallow(wanted.config, 1), storage_dtype(wanted.master)).base_model.layers
    return pieces(*(param.nbytes for param in layer.parameters()))


@contextmanager
def _fused_attention() -> Iterator[None]:
    """Attention as real devices do it, without a matrix of scores; meta would make one."""
    original = functional.scaled_dot_product_attention
    functional.scaled_dot_product_attention = _attention  # type: ignore[assignment]
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = original


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None, **rest: Any,
) -> Tensor:  # fmt: skip
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.empty_like(attn_mask, dtype=query.dtype)
    result: Tensor = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
    )[0]
    return result
