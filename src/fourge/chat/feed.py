"""Tokens into a model's key-value cache: only new ones are computed, whatever came before.

The cache is transformers' own, with room to grow (``room``). ``ids`` is what it holds, token for
token. A piece of several tokens after others needs a mask that is causal inside the piece;
transformers makes it from the length of the cache, so feeding at once, in pieces, or one by one
gives the same logits.

To hold another text the cache is cut back to the longest common prefix and the rest is fed. A
cache that cannot be cut (a sliding window that has moved on) is emptied and everything is fed
again: slower, and right. The same happens after an error in the middle of a forward pass, which
leaves some layers a piece ahead of others.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from fourge.chat.finite import require_finite
from fourge.chat.fp8 import Fp8Layer, fp8_cache
from fourge.chat.room import roomy_cache
from fourge.core.prefix import common_prefix

CacheKind = Literal["plain", "fp8"]
PIECE = 512  # tokens per forward pass of a long text


class Feed:
    """A model and the cache of one conversation."""

    def __init__(self, model: Any, *, cache: CacheKind = "plain", piece: int = PIECE) -> None:
        self.model, self.kind, self.piece = model, cache, piece
        self.ids: list[int] = []
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        config = self.model.config
        fp8 = self.kind == "fp8"
        self.cache = fp8_cache(config.num_hidden_layers) if fp8 else roomy_cache(config)
        self.ids = []

    def hold(self, ids: Sequence[int], halt: Callable[[], bool] = lambda: False) -> Tensor | None:
        """Make the cache hold exactly these tokens; the logits after the last of them.

        None if ``halt`` said so between two pieces: what was fed stays.
        """
        # The last token is always fed: nobody kept the logits that it gave.
        self.rewind(min(common_prefix(self.ids, ids), len(ids) - 1))
        logits_V = None
        while len(self.ids) < len(ids):
            if halt():
                return None
            start = len(self.ids)
            logits_V = self.feed(ids[start : start + self.piece])[-1]
        return logits_V

    @torch.no_grad()
    def feed(self, ids: Sequence[int], *, all_logits: bool = False) -> Tensor:
        """Append tokens; the logits [T, V] after each of them, or after the last alone.

        Raises:
            FormatError: a logit is not finite.
        """
        tokens_BT = torch.tensor([list(ids)], device=self.model.device)
        keep = 0 if all_logits else 1  # transformers' word for "all" is 0
        try:
            output = self.model(
                tokens_BT, past_key_values=self.cache, use_cache=True, logits_to_keep=keep
            )
            require_finite(output.logits, self.model, [*self.ids, *ids])
        except BaseException:
            self.reset()
            raise
        self.ids += ids
        logits_TV: Tensor = output.logits[0].float()
        return logits_TV

    def rewind(self, length: int) -> None:
        """Keep the first ``length`` tokens."""
        if length == len(self.ids):
            return
        if length == 0 or not can_cut(self.cache):
            self.reset()
            return
        self.cache.crop(length - len(self.ids))
        del self.ids[length:]

    @property
    def nbytes(self) -> int:
        """What the cache takes."""
        tensors = [each for layer in self.cache.layers for each in layer_tensors(layer).values()]
        return sum(tensor.nbytes for tensor in tensors)


def can_cut(cache: Any) -> bool:
    """Whether the end of a cache can be taken back without a trace."""
    moved_on = any(
        layer.is_sliding and layer.get_seq_length() >= layer.sliding_window
        for layer in cache.layers
        if hasattr(layer, "is_sliding")
    )
    return bool(cache.is_croppable) and not moved_on


def layer_tensors(layer: Any) -> dict[str, Tensor]:
    """The tensors of one layer of a cache, by name; none before anything was fed."""
    if not layer.is_initialized:
        return {}
    names = (
        "keys",
        "values",
        *(("key_scale", "value_scale") if isinstance(layer, Fp8Layer) else ()),
    )
    return {name: getattr(layer, name) for name in names}
