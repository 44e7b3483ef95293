"""Which layer made a number that is not finite: asked only once such a number is there.

The original of many a model that answers ``!!!!`` is a NaN among the logits, whose argmax is
token 0. The forward pass is then run once more with an eye on every module; modules end in the
order in which they compute, inner ones before the outer, so the first one whose output is not
finite is where it began.

Not every such number reaches the logits: torch's attention on a CPU gives zeros where all scores
are NaN, so a spoiled key goes unseen. ``first_nonfinite`` sees it.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fourge.core.errors import FormatError


def require_finite(logits: Tensor, model: Any, tokens: Sequence[int]) -> None:
    """Raise for logits that nothing can be chosen from.

    Raises:
        FormatError: names the first layer whose output is not finite.
    """
    if all_finite(logits):
        return
    layer = first_nonfinite(model, tokens)
    raise FormatError(
        "The model's logits are not finite.",
        why=f"the first output that is not finite is that of {layer}"
        if layer
        else "computed afresh they are finite: what the cache held was not",
        fix="its weights are damaged, or its dtype is too narrow: try --dtype float32",
    )


def all_finite(logits: Tensor) -> bool:
    """Whether something can be chosen from them."""
    return bool(torch.isfinite(torch.stack(torch.aminmax(logits))).all())  # a NaN makes both NaN


@torch.no_grad()
def first_nonfinite(model: nn.Module, tokens: Sequence[int]) -> str | None:
    """The name of the first module that gives a number that is not finite."""
    found: list[str] = []
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            hook = module.register_forward_hook(partial(_look, name or "the model", found))
            hooks.callback(hook.remove)
        device = next(model.parameters()).device
        model(torch.tensor([list(tokens)], device=device), use_cache=False)
    return next(iter(found), None)


def _look(name: str, found: list[str], module: nn.Module, args: Any, output: Any) -> None:
    values = output if isinstance(output, tuple) else (output,)
    tensors = [v for v in values if isinstance(v, Tensor) and v.is_floating_point()]
    if not all(torch.isfinite(tensor).all() for tensor in tensors):
        found.append(name)
