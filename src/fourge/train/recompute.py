"""Activations that are computed again instead of kept.

``block``  keeps the input of each block and runs the block again in the backward pass: the least
           memory, one forward pass more.
``light``  keeps all but what lies between the products of the feed-forward parts: the widest
           tensors of a block, for an activation function and a multiplication more.
``none``   keeps everything.

No bit of the result depends on it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from fourge.core.errors import ConfigError
from fourge.nvfp4.kept import Products, keeping, reusing

Recompute = Literal["block", "light", "none"]
RECOMPUTE: tuple[Recompute, ...] = ("block", "light", "none")
_FEED_FORWARD = "mlp"  # its name in a block of Llama, Qwen, Gemma, Mistral and most others


def recompute_(model: Any, how: Recompute) -> None:
    """Set a transformers model to compute parts of itself again in the backward pass, or not.

    Raises:
        ConfigError: ``light``, and no part of the model has the name of a feed-forward part.
    """
    parts = _feed_forwards(model)
    if how == "light" and not parts:
        raise ConfigError(
            f"train.recompute is light; no block of this model has a part named {_FEED_FORWARD}.",
            fix="choose block or none",
        )
    model.gradient_checkpointing_disable()
    for part in parts:
        vars(part).pop("forward", None)
    if how == "block":
        settings = {"use_reentrant": False}
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=settings)
    elif how == "light":
        for part in parts:
            part.forward = partial(_run, part.forward)


def _feed_forwards(model: nn.Module) -> list[nn.Module]:
    return [part for name, part in model.named_modules() if name.endswith(f".{_FEED_FORWARD}")]


def _run(forward: Callable[..., Any], *given: Any) -> Any:
    """Run a part so that it can run again, but for its products."""
    if not torch.is_grad_enabled():
        return forward(*given)
    products = Products()

    def run(*given: Any) -> Any:
        result = forward(*given)
        products.let_go_of(result)
        return result

    return checkpoint(
        run, *given, use_reentrant=False, preserve_rng_state=False,  # dropout is refused
        context_fn=lambda: (keeping(products), reusing(products)),
    )  # fmt: skip
