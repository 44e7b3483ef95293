"""Attention in a sequence of runs (``train/joined.py``): rows that begin alike, laid down once.

    run 0   s s s s                 sees itself
    run 1           a a a a a       sees 0 and itself
    run 2                     b b   sees 0 and itself

One mask over the whole sequence would have most pairs multiplied only to be forgotten. Each run
is given the keys of its own way to the root instead, which takes a quarter of the time for 16 rows
of a chat (docs/why.md).

Shapes: B rows (one), H query heads, K key-value heads, S tokens, D values of a head; Q tokens of a
run, T tokens that it sees.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Run:
    """Tokens that follow each other, and what they follow."""

    before: tuple[int, ...]  # numbers of runs, from the root on
    mask_QT: Tensor  # added to the scores of all that it sees: the runs before, then itself


@dataclass(frozen=True, slots=True)
class Runs:
    """A sequence of them. It is attended to in the dtype of the masks."""

    runs: tuple[Run, ...]

    def attended(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        scaling: float | None = None,
        **settings: Any,
    ) -> Tensor:
        """Run by run."""
        counts = [len(run.mask_QT) for run in self.runs]
        dtype = self.runs[0].mask_QT.dtype
        if not query.is_cpu:  # with a mask, a GPU's fused kernels want keys for every query head
            heads = query.shape[1] // key.shape[1]
            key, value = (each.repeat_interleave(heads, dim=1) for each in (key, value))
        given = (query.to(dtype), key.to(dtype), value.to(dtype))
        queries, keys, values = (each.split(counts, dim=2) for each in given)
        outs = []
        for number, run in enumerate(self.runs):
            path = (*run.before, number)
            seen, told = (torch.cat([of[at] for at in path], dim=2) for of in (keys, values))
            out = functional.scaled_dot_product_attention(
                queries[number],
                seen,
                told,
                attn_mask=run.mask_QT,
                scale=scaling,
                enable_gqa=query.is_cpu,
            )
            outs.append(out.transpose(1, 2))
        return torch.cat(outs, dim=1).to(query.dtype)
