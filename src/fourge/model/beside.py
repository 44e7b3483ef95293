"""Attention of rows side by side that may begin alike (``chat/rows.py``).

```
        shared, held once      columns of a row's own
row 1   p p p p                . . a b c d | e       . is left of where the row begins
row 2   p p p p                k l m n o u | v
row 3                          f g h q r s | t       this one begins otherwise
```

A step of many rows mostly reads keys and values. A copy of what they begin with for every row would
be half of that; held once, it stays in the processor's cache from one row to the next. On a CPU a
kernel (``beside.cpp``) does a row and the query heads that share its keys at a time, in half of
the time of ``sdpa``; elsewhere the shared keys are put before each row's, for ``sdpa``.

A row's numbers do not depend on the rows beside it.

Shapes: B rows, H query heads, K key-value heads, Q tokens that are fed, T columns, P shared tokens,
D values of a head.
"""

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fourge.model.lanes import fits_lanes, kernel_for, kernels_beside
from fourge.nvfp4.built import threads_for

Pair = tuple[Tensor, Tensor]  # keys and values
_EVERYTHING = 1 << 40  # tokens that a layer without a window sees


@dataclass(frozen=True, slots=True)
class Beside:
    """What each row sees: the beginning of what is shared, then its own, up to the token fed."""

    shared: Sequence[Pair]  # [K, P, D], layer by layer; empty if no row begins with it
    begins_B: Tensor  # int64: with how many shared tokens a row begins
    starts_B: Tensor  # int64: the first column that is a row's own

    def attended(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        scaling: float | None = None,
        sliding_window: int | None = None,
        **settings: Any,
    ) -> Tensor:
        """Row by row."""
        none = key.new_empty(key.shape[1], 0, key.shape[3])
        layer: Any = module  # which knows its number
        shared = self.shared[layer.layer_idx] if self.shared else (none, none)
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        way = _by_kernel if _takes(query, key, value) else _by_sdpa
        return way(self, query, (key, value), shared, scale, sliding_window or _EVERYTHING)


def _by_sdpa(
    sight: Beside, query: Tensor, own: Pair, shared: Pair, scale: float, window: int
) -> Tensor:
    rows, _, queries, _ = query.shape
    every = (rows, -1, -1, -1)
    key, value = (
        torch.cat([one.expand(every), many], dim=2) for one, many in zip(shared, own, strict=True)
    )
    columns = own[0].shape[2]
    shared_P = torch.arange(shared[0].shape[1], device=query.device)
    own_T = torch.arange(columns, device=query.device)
    begins_B1, starts_B1 = sight.begins_B[:, None], sight.starts_B[:, None]
    # Places in the row, which a window counts in. What a row does not have is behind its end.
    shared_BP = torch.where(shared_P < begins_B1, shared_P, _EVERYTHING)
    own_BT = torch.where(own_T >= starts_B1, begins_B1 + own_T - starts_B1, _EVERYTHING)
    place_B1T = torch.cat([shared_BP, own_BT], dim=1)[:, None]
    last_BQ1 = own_BT[:, -queries:, None]
    mask_BQT = (place_B1T <= last_BQ1) & (place_B1T > last_BQ1 - window)
    out = functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask_BQT[:, None], scale=scale, enable_gqa=True
    )
    return out.transpose(1, 2)


def _takes(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether the kernel is for these."""
    size = query.shape[-1]
    return (
        fits_lanes(query, key, value)
        and all(each.stride(-2) == size for each in (key, value))
        and not torch.is_grad_enabled()
        and _kernels() is not None
    )


def _by_kernel(
    sight: Beside, query: Tensor, own: Pair, shared: Pair, scale: float, window: int
) -> Tensor:
    kernel = kernel_for(_kernels(), "attend", query.dtype)
    (rows, heads, queries, size), columns = query.shape, own[0].shape[2]
    out = query.new_zeros(rows, queries, heads, size)
    tensors = (query, *own, *shared, sight.starts_B, sight.begins_B, out)
    key, value = own
    sizes = (ctypes.c_int64 * 15)(
        rows, heads, key.shape[1], queries, columns, size, shared[0].shape[1], window,
        *query.stride()[:3], *key.stride()[:2], *value.stride()[:2],
    )  # fmt: skip
    pointers = [each.data_ptr() for each in tensors]
    kernel(*pointers, sizes, scale, threads_for(query.numel() * columns))
    return out


@functools.cache
def _kernels() -> ctypes.CDLL | None:
    return kernels_beside(__file__, attend=9)
