"""Attention of one new token per row to keys that several query heads share.

With a mask, transformers' ``sdpa`` copies every key and value once for each query head that reads
it, because kernels of some GPUs take no mask otherwise. For one token per row there is a way
without copies: the query heads of a group stand where several tokens would,

    query [B, H, 1, D]  ->  [B, K, H / K, D]        keys, values [B, K, T, D]

and the mask, which is the same for all heads, serves them all. The products are the same ones.

Shapes: B rows, H query heads, K key-value heads, T columns of the cache, D values of a head.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

NAME = "sdpa_in_groups"
_UNGROUPED = nn.Module()  # each of its query heads has keys of its own, says its silence


def attend_in_groups(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **settings: Any,
) -> tuple[Tensor, None]:
    """What transformers' ``sdpa`` gives, without copies where that can be."""
    rows, heads, count, size = query.shape
    is_for_all = attention_mask is not None and attention_mask.shape[1] == 1
    if count > 1 or not is_for_all or settings.get("position_bias") is not None:
        out, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **settings)
        return out, None
    grouped = query.reshape(rows, key.shape[1], -1, size)
    out, _ = sdpa_attention_forward(_UNGROUPED, grouped, key, value, attention_mask, **settings)
    return out.transpose(1, 2).reshape(rows, 1, heads, -1), None


AttentionInterface.register(NAME, attend_in_groups)
AttentionMaskInterface.register(NAME, sdpa_mask)


@contextmanager
def in_groups(model: Any) -> Iterator[None]:
    """Have a model whose attention is ``sdpa`` attend in groups while the block lasts."""
    config = model.config
    if config._attn_implementation != "sdpa":
        yield
        return
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = "sdpa"
