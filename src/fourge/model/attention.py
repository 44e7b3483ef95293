"""What transformers' ``sdpa`` gives, without what it copies or computes in vain in two cases.

**One new token per row**, with keys that several query heads share. With a mask, ``sdpa`` copies
every key and value once for each query head that reads it, because kernels of some GPUs take no
mask otherwise. There is a way without copies: the query heads of a group stand where several tokens
would,

    query [B, H, 1, D]  ->  [B, K, H / K, D]        keys, values [B, K, T, D]

and the mask, which is the same for all heads, serves them all. The products are the same ones.

**A sequence of runs** (``train/joined.py``): rows that begin alike and are laid down once.

    run 0   s s s s                 sees itself
    run 1           a a a a a       sees 0 and itself
    run 2                     b b   sees 0 and itself

One mask over the whole sequence would have most pairs multiplied only to be forgotten. Each run
is given the keys of its own way to the root instead, which takes a quarter of the time for 16 rows
of a chat (docs/why.md).

Shapes: B rows, H query heads, K key-value heads, T columns of the cache, D values of a head;
Q tokens of a run, S tokens of a sequence of runs.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

NAME = "sdpa_fourge"
PLAIN = ("sdpa", NAME)
_UNGROUPED = nn.Module()  # each of its query heads has keys of its own, says its silence


@dataclass(frozen=True, slots=True)
class Run:
    """Tokens that follow each other, and what they follow."""

    before: tuple[int, ...]  # numbers of runs, from the root on
    mask_QT: Tensor  # added to the scores of all that it sees: the runs before, then itself


class RunsMask(Tensor):
    """The mask of a sequence of runs, which every layer hands on to its attention.

    It has four dimensions, so that transformers makes no other, and no size, so that an attention
    that does not know of runs fails. It is boolean, so that nobody rounds it.
    """

    runs: tuple[Run, ...]

    @staticmethod
    def of(runs: Sequence[Run]) -> "RunsMask":
        mask = torch.empty(1, 1, 0, 0, dtype=torch.bool).as_subclass(RunsMask)
        mask.runs = tuple(runs)
        return mask


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **settings: Any,
) -> tuple[Tensor, None]:
    """What transformers' ``sdpa`` gives."""
    if isinstance(attention_mask, RunsMask):
        return _attend_runs(query, key, value, attention_mask.runs, settings.get("scaling")), None
    rows, heads, count, size = query.shape
    is_for_all = attention_mask is not None and attention_mask.shape[1] == 1
    if count > 1 or not is_for_all or settings.get("position_bias") is not None:
        out, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **settings)
        return out, None
    grouped = query.reshape(rows, key.shape[1], -1, size)
    out, _ = sdpa_attention_forward(_UNGROUPED, grouped, key, value, attention_mask, **settings)
    return out.transpose(1, 2).reshape(rows, 1, heads, -1), None


def _attend_runs(
    query: Tensor, key: Tensor, value: Tensor, runs: Sequence[Run], scaling: float | None
) -> Tensor:
    """Run by run, in the dtype of the masks."""
    counts, dtype = [len(run.mask_QT) for run in runs], runs[0].mask_QT.dtype
    if not query.is_cpu:  # with a mask, a GPU's fused kernels want keys for every query head
        heads = query.shape[1] // key.shape[1]
        key, value = (each.repeat_interleave(heads, dim=1) for each in (key, value))
    given = (query.to(dtype), key.to(dtype), value.to(dtype))
    queries, keys, values = (each.split(counts, dim=2) for each in given)
    outs = []
    for number, run in enumerate(runs):
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


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, sdpa_mask)


def attend_better_(model: Any) -> None:
    """Have a model whose attention is ``sdpa`` use this one, from now on."""
    if model.config._attn_implementation == "sdpa":
        model.config._attn_implementation = NAME


@contextmanager
def attending_better(model: Any) -> Iterator[None]:
    """The same, while the block lasts."""
    found = model.config._attn_implementation
    attend_better_(model)
    try:
        yield
    finally:
        model.config._attn_implementation = found
