"""How many weights an update really moved: the number that a silent no-op cannot hide from.

Counted on a sample, 16 rows spread over each tensor, so that it costs next to nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

ROWS = 16


class Moved:
    """Counts, over the tensors of one step, sampled weights before and after."""

    def __init__(self) -> None:
        self.tensors = 0
        self._seen = 0
        self._changed: list[Tensor] = []

    @contextmanager
    def watching(self, stored: Tensor, codes_per_value: int = 1) -> Iterator[None]:
        """Compare what is stored before and after the block; a byte may hold two codes."""
        sample = sampled(stored)
        before = sample.clone()
        yield
        self.tensors += 1
        self._seen += sample.numel() * codes_per_value
        self._changed.append(changed(before, sample, codes_per_value))

    @property
    def counts(self) -> tuple[float, int]:
        """How many of the sampled weights are not what they were, and how many were sampled."""
        changed = float(torch.stack(self._changed).sum()) if self._changed else 0.0
        return changed, self._seen

    @property
    def share(self) -> float:
        """The share of the sampled weights that are not what they were."""
        changed, seen = self.counts
        return changed / seen if seen else 0.0


def sampled(stored: Tensor) -> Tensor:
    """Up to 16 rows spread over a tensor: a view."""
    if stored.dim() < 2:
        return stored
    return stored[:: -(-stored.shape[0] // ROWS)]


def changed(before: Tensor, after: Tensor, codes_per_value: int = 1) -> Tensor:
    """How many differ, as a 0-d tensor."""
    if codes_per_value == 1:
        return (before != after).sum()
    differs, some = before ^ after, before | after  # codes 0 and 8 are both zero
    low = ((differs & 0xF) != 0) & ((some & 0x7) != 0)
    return low.sum() + (((differs >> 4) != 0) & ((some & 0x70) != 0)).sum()
