"""Activations that are computed again instead of kept.

``block``  keeps the input of each block and runs the block again in the backward pass: the least
           memory, one forward pass more.
``light``  also keeps the results of the linear layers, and computes again only what lies between
           them (norms, attention, activations), which costs little.
``none``   keeps everything.

No bit of the result depends on it.
"""

from contextlib import AbstractContextManager
from typing import Any, Literal

from fourge.nvfp4.kept import Products, keeping, reusing

Recompute = Literal["block", "light", "none"]
RECOMPUTE: tuple[Recompute, ...] = ("block", "light", "none")


def recompute_(model: Any, how: Recompute) -> None:
    """Set a transformers model to compute its blocks again in the backward pass, or not."""
    if how == "none":
        model.gradient_checkpointing_disable()
        return
    settings: dict[str, Any] = {"use_reentrant": False}
    if how == "light":
        settings["context_fn"] = _both_runs
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=settings)


def _both_runs() -> tuple[AbstractContextManager[None], reusing]:
    """What torch enters around a block's first run, and around the one in the backward pass."""
    products = Products()
    return keeping(products), reusing(products)
