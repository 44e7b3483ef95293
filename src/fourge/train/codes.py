"""The share of NVFP4 codes that changed since the forward pass before: did the model change?

A master may move while every weight stays in its code, and then the model that is served is the
same as before. Counted on 16 rows of each layer.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fourge.model.swap import nvfp4_layers
from fourge.optim.moved import changed, sampled

Samples = Callable[[Any], list[Tensor]]


def code_samples(model: Any) -> list[Tensor]:
    """Some rows of the packed codes of every NVFP4 layer: copies."""
    layers = nvfp4_layers(model).values()
    return [sampled(layer.codes().packed_RC).clone() for layer in layers]


class CodeWatch:
    """Remembers a sample of the codes of every layer."""

    def __init__(self, model: Any, samples: Samples = code_samples) -> None:
        self._model, self._samples = model, samples
        self._before: list[Tensor] = []

    @torch.no_grad()
    def counts(self) -> tuple[float, int]:
        """Codes that changed since the last call, of how many; none the first time."""
        now = self._samples(self._model)
        before, self._before = self._before, now
        if not before:
            return 0.0, 0
        differ = [changed(b, n, 2) for b, n in zip(before, now, strict=True)]
        return float(torch.stack(differ).sum()), sum(2 * n.numel() for n in now)
