"""How large a gradient is, and how much of it may be used.

``global``    all gradients are scaled by ``clip / norm`` if the norm of all of them together
              exceeds ``clip``. Exact; needs every gradient before the first update.
``tensor``    AdaGC, for gradients that are released one by one: a tensor's norm may exceed the
              running mean of its own past (clipped) norms by 5 %; at its first step it is
              clipped to ``clip``.
"""

from math import isfinite
from typing import Any

import torch
from torch import Tensor

from fourge.core.errors import DivergedError
from fourge.nvfp4 import native
from fourge.nvfp4.compiled import compiled

GROWTH, MEMORY = 1.05, 0.98
WIDTH = 256
_LANES = 16  # WIDTH is their square
_NOTHING = 1e-30  # keeps a norm of zero from being divided by


def square_of(grad: Tensor) -> float:
    """The squared norm of a gradient, or of the rows of it that are here."""
    flat = grad.reshape(-1)
    whole = flat.numel() - flat.numel() % WIDTH
    row_NK = flat[:whole].view(-1, WIDTH)
    if native.can_use(row_NK):
        squares = native.sum_of_squares(row_NK)
    else:
        squares = float(_square_sums(row_NK).double().sum())
    rest = flat[whole:]
    return squares + float(rest.float().square().double().sum()) if len(rest) else squares


def require_finite_square(name: str, square: float, *, others_changed: bool) -> None:
    """Raise for a squared norm that training cannot go on from.

    Raises:
        DivergedError: it is not finite, because a value is not, or is beyond 1e19.
    """
    if isfinite(square):
        return
    raise DivergedError(
        f"The gradient of {name} is not finite.",
        why="the weights of later layers have changed already: the step is half done"
        if others_changed
        else "no weight was changed",
        fix="begin again with a lower learning rate",
    )


def _row_squares(grad_NK: Tensor) -> Tensor:
    """Sums of squares, in an order that is written out: ``sum`` leaves it to the compiler."""
    square_NLL = grad_NK.to(torch.float32).square().view(-1, _LANES, _LANES)
    total_NL = square_NLL[:, 0]
    for lane in range(1, _LANES):
        total_NL = total_NL + square_NLL[:, lane]
    for half in (8, 4, 2, 1):
        total_NL = total_NL[:, :half] + total_NL[:, half : 2 * half]
    return total_NL.squeeze(-1)


_square_sums = compiled(_row_squares, small=64)  # torch's own norm converts all of it first


def global_scale(norm: float, clip: float | None) -> float:
    return 1.0 if clip is None else min(1.0, clip / max(norm, _NOTHING))


def tensor_scale(norm: float, clip: float, state: dict[str, Any]) -> float:
    """The factor for one tensor, by its own history, which ``state["norm"]`` keeps."""
    past = state.get("norm") or None  # of a tensor that never had a gradient nothing is known
    allowed = clip if past is None else GROWTH * past
    scale = min(1.0, allowed / max(norm, _NOTHING))
    clipped = scale * norm
    state["norm"] = clipped if past is None else MEMORY * past + (1 - MEMORY) * clipped
    return scale
