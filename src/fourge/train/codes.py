"""The share of NVFP4 codes that changed since the forward pass before: did the model change?

A master may move while every weight stays in its code, and then the model that is served is the
same as before. Counted on 16 rows of each layer.
"""

from typing import Any

import torch
from torch import Tensor

from fourge.model.swap import nvfp4_layers
from fourge.optim.moved import changed, sampled


class CodeWatch:
    """Remembers a sample of the codes of every layer."""

    def __init__(self, model: Any) -> None:
        self._layers = list(nvfp4_layers(model).values())
        self._before: list[Tensor] = []

    @torch.no_grad()
    def share(self) -> float | None:
        """Since the last call; None the first time, or where there is no NVFP4 layer."""
        now = [sampled(layer.codes().packed_RC).clone() for layer in self._layers]
        before, self._before = self._before, now
        if not before:
            return None
        counts = [changed(b, n, 2) for b, n in zip(before, now, strict=True)]
        return float(torch.stack(counts).sum()) / sum(2 * n.numel() for n in now)
