"""Activations that are computed again instead of kept.

``block``  keeps the input of each block and runs the block again in the backward pass: the least
           memory, one forward pass more.
``light``  also keeps the results of products and of attention, and computes again only what lies
           between them (norms, activations, rotations), which costs little: about half of the
           memory that keeping everything takes.
``none``   keeps everything.

No bit of the result depends on it.
"""

from functools import partial
from typing import Any, Literal

import torch
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

Recompute = Literal["block", "light", "none"]
RECOMPUTE: tuple[Recompute, ...] = ("block", "light", "none")

_KEPT = (
    torch.ops.aten.mm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten.bmm.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
)


def _policy(context: Any, operation: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    kept = operation in _KEPT or operation is torch.ops.fourge.dequant_linear.default
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


def recompute_(model: Any, how: Recompute) -> None:
    """Set a transformers model to compute its blocks again in the backward pass, or not."""
    if how == "none":
        model.gradient_checkpointing_disable()
        return
    settings: dict[str, Any] = {"use_reentrant": False}
    if how == "light":
        settings["context_fn"] = partial(create_selective_checkpoint_contexts, _policy)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=settings)
