"""Attention in a sequence of runs (``train/joined.py``): rows that begin alike, laid down once.

    run 0   s s s s                 sees itself
    run 1           a a a a a       sees 0 and itself
    run 2                     b b   sees 0 and itself

One mask over the whole sequence would have most pairs multiplied only to be forgotten. Each run
is given the keys of its own way to the root instead, which takes a quarter of the time for 16 rows
of a chat (docs/why.md). On a CPU a kernel (``runs.cpp``) does all runs in one call, in float32
between values of any dtype; elsewhere each run is a call of ``sdpa``.

Shapes: B rows (one), H query heads, K key-value heads, S tokens, D values of a head; Q tokens of a
run, T tokens that it sees.
"""

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from fourge.model.lanes import fits_lanes, kernel_for, kernels_beside


@dataclass(frozen=True, slots=True)
class Run:
    """Tokens that follow each other, and what they follow."""

    before: tuple[int, ...]  # numbers of runs, from the root on
    mask_QT: Tensor  # added to the scores of all that it sees: the runs before, then itself


@dataclass(frozen=True)
class Runs:
    """A sequence of them. ``sdpa`` attends to it in the dtype of the masks."""

    runs: tuple[Run, ...]

    @functools.cached_property
    def laid(self) -> tuple[Tensor, Tensor, Tensor]:
        """For the kernel: where runs begin; where the list of those before each does; the lists."""
        starts = accumulate((len(run.mask_QT) for run in self.runs), initial=0)
        lists = accumulate((len(run.before) for run in self.runs), initial=0)
        before = (number for run in self.runs for number in run.before)
        starts_R, lists_R, before_N = (torch.tensor(list(of)) for of in (starts, lists, before))
        return starts_R, lists_R, before_N.long()

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
        if fits_lanes(query, key, value) and _kernels() is not None:
            scale = query.shape[-1] ** -0.5 if scaling is None else scaling
            out: Tensor = _ByKernel.apply(query, key, value, self, scale)  # type: ignore[no-untyped-call]
            return out
        return _by_sdpa(self.runs, query, key, value, scaling)


def _by_sdpa(
    runs: Sequence[Run], query: Tensor, key: Tensor, value: Tensor, scaling: float | None
) -> Tensor:
    counts = [len(run.mask_QT) for run in runs]
    dtype = runs[0].mask_QT.dtype
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


class _ByKernel(torch.autograd.Function):
    """Attention [B, S, H, D] of queries [B, H, S, D] to keys and values [B, K, S, D]."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, runs: Runs, scale: float
    ) -> Tensor:
        ctx.save_for_backward(query, key, value)
        ctx.runs, ctx.scale = runs, scale
        _, heads, tokens, size = query.shape
        out = query.new_empty(1, tokens, heads, size)
        _call("forward", (query, key, value), runs, (out,), scale)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor | None, ...]:
        tensors = ctx.saved_tensors
        made = [each.new_empty(each.transpose(1, 2).shape) for each in tensors]  # [B, S, H, D]
        _call("backward", (*tensors, given.contiguous()), ctx.runs, made, ctx.scale)
        return (*(each.transpose(1, 2) for each in made), None, None)


def _call(
    way: str, given: Sequence[Tensor], runs: Runs, made: Sequence[Tensor], scale: float
) -> None:
    query, key, value = given[:3]
    kernel = kernel_for(_kernels(), way, query.dtype)
    sizes = (ctypes.c_int64 * 11)(
        query.shape[1], key.shape[1], query.shape[3], query.shape[2], len(runs.runs),
        *query.stride()[1:3], *key.stride()[1:3], *value.stride()[1:3],
    )  # fmt: skip
    pointers = [each.data_ptr() for each in (*given, *runs.laid, *made)]
    kernel(*pointers, sizes, scale, torch.get_num_threads())


@functools.cache
def _kernels() -> ctypes.CDLL | None:
    return kernels_beside(__file__, forward=8, backward=11)
