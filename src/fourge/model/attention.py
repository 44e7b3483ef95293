"""Attention that knows what a token sees, where a mask would only say what it does not.

A mask has a place for every pair of tokens, and what it forbids is multiplied all the same. Two
ways of laying tokens down, ``runs.py`` (rows that begin alike, in one sequence, for training) and
``beside.py`` (rows side by side, one token each, for answers), know better. Such a *sight* goes
through a model as a mask does, and computes the attention of every layer itself. Anything else is
left to transformers' ``sdpa``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

NAME = "sdpa_fourge"
_OTHER_BLOCKS = ("block_types", "layers_block_type")  # as configs of recurrent models name them
_OF_TOKENS = {"full_attention", "sliding_attention"}


class Sight(Protocol):
    """What the tokens that a model is given see."""

    def attended(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, **settings: Any
    ) -> Tensor:
        """The attention [B, Q, H, D] of queries [B, H, Q, D], as transformers' ``sdpa`` gives it.

        Keys and values [B, K, T, D] are what the layer's cache holds, or those of the queries.
        """


class SightMask(Tensor):
    """A sight in the place of a mask, which every layer hands on to its attention.

    It has four dimensions, so that transformers makes no other, and no size, so that an attention
    that does not know of sights fails. It is boolean, so that nobody rounds it.
    """

    sight: Sight

    @staticmethod
    def of(sight: Sight) -> "SightMask":
        mask = torch.empty(1, 1, 0, 0, dtype=torch.bool).as_subclass(SightMask)
        mask.sight = sight
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
    if isinstance(attention_mask, SightMask):
        return attention_mask.sight.attended(module, query, key, value, **settings), None
    out, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **settings)
    return out, None


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, sdpa_mask)


def takes_sight(model: Any) -> bool:
    """Whether every layer of a model attends to tokens, and by what it is told to attend with."""
    config = model.config
    kinds = set(getattr(config, "layer_types", None) or [])
    is_recurrent = any(hasattr(config, name) for name in _OTHER_BLOCKS)
    is_ours = config._attn_implementation in ("sdpa", NAME) and model._supports_attention_backend
    return bool(kinds <= _OF_TOKENS and not is_recurrent and is_ours)


def attend_by_sight_(model: Any) -> None:
    """Have a model whose attention is ``sdpa`` use this one, from now on."""
    if model.config._attn_implementation == "sdpa":
        model.config._attn_implementation = NAME


@contextmanager
def attending_by_sight(model: Any) -> Iterator[None]:
    """The same, while the block lasts."""
    found = model.config._attn_implementation
    attend_by_sight_(model)
    try:
        yield
    finally:
        model.config._attn_implementation = found
