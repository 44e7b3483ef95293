"""Conversations side by side in one key-value cache: rows that join, are fed together, and leave.

Each step feeds one token of every row. A row that is done leaves and another joins, so that a step
always has as many rows as it may; otherwise all would wait for the longest answer.

```
            columns of the cache                     a step feeds
row 1   . . . . p p p p a b c d e | f                the last token of the prompt
row 2   p p p p k l m n o u v w x | y                a token that was said
row 3   . . p p p p g h q r s t u | v
```

Rows end in the same column; what is left of a row (``.``) is masked. ``p`` is what most prompts
begin with (a system's text, above all): it is computed once, for all that do.

A prompt is read but for its last token, in groups whose rows begin in the same column: behind a
row's end nothing is looked at, so there is no mask, and a column is a position. Then the rows are
moved to end together. The last token is the first one to be stepped with; its logits choose the
first token of the answer.

Every layer keeps all its columns, also one that looks at a window only: the mask narrows it. So
distances between columns are distances between tokens, whatever stands beside a row.

Shapes: B rows, T columns, H key-value heads, D values of a head, V tokens of the vocabulary.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from fourge.chat.finite import all_finite, require_finite
from fourge.chat.room import ROOM, RoomyLayer
from fourge.model.attention import attending_better

READ_AT_ONCE = 1024  # tokens: enough for products at full speed, few enough for the cache
NO_LOGITS = torch.empty(0, dtype=torch.long)
Held = list[tuple[Tensor, Tensor]]  # keys and values of some rows [B, H, T, D], layer by layer


class Rows:
    """The rows of one model. ``ids`` is what each one has been given, its last token unfed.

    What prompts have in common, ``shared``, is read once.
    """

    def __init__(self, model: Any, shared: Sequence[int]) -> None:
        self.model, self.shared = model, list(shared)
        self.ids: list[list[int]] = []
        self.cache = empty_cache(model)
        self.mask_BT = torch.ones(0, 0, dtype=torch.long, device=model.device)
        self._beginning: Held = []

    @torch.no_grad()
    def step(self) -> Tensor:
        """Feed the last token of each row; the logits [B, V] after it.

        Raises:
            FormatError: a logit is not finite.
        """
        device = self.model.device
        tokens_B1 = torch.tensor([[ids[-1]] for ids in self.ids], device=device)
        positions_B1 = torch.tensor([[len(ids) - 1] for ids in self.ids], device=device)
        self.mask_BT = torch.cat([self.mask_BT, torch.ones_like(tokens_B1)], dim=1)
        with attending_better(self.model):
            output = self.model(
                tokens_B1, attention_mask=self.mask_BT, position_ids=positions_B1,
                past_key_values=self.cache, use_cache=True,
            )  # fmt: skip
        logits_BV: Tensor = output.logits[:, -1]
        if not all_finite(logits_BV):
            row = int((~logits_BV.isfinite()).any(-1).int().argmax())
            require_finite(logits_BV, self.model, self.ids[row])
        return logits_BV

    def begins_so(self, prompt: Sequence[int]) -> bool:
        """Whether a prompt begins with what is shared, and goes on."""
        count = len(self.shared)
        return len(prompt) > count and list(prompt[:count]) == self.shared

    @torch.no_grad()
    def change(self, stay: Sequence[int], join: Sequence[Sequence[int]]) -> None:
        """Keep the rows of these numbers, and put new prompts behind them.

        Those that begin with what is shared come first; of each kind the shortest first.
        """
        parts = [self._kept(stay)] if stay else []
        for shares, prompts in groupby(join, key=self.begins_so):
            start = len(self.shared) if shares else 0
            for group in groups(list(prompts), start):
                parts += self._read(group, start)
        self.ids = [self.ids[number] for number in stay] + [list(prompt) for prompt in join]
        fed = [len(ids) - 1 for ids in self.ids]
        width = max(fed, default=0)
        mask = [[0] * (width - count) + [1] * count for count in fed]
        self.mask_BT = torch.tensor(mask, dtype=torch.long, device=self.model.device)
        self.cache = empty_cache(self.model)
        for layer, *held in zip(self.cache.layers, *parts, strict=True):
            keys, values = zip(*held, strict=True)
            layer.hold(side_by_side(keys, width), side_by_side(values, width), width)

    def _kept(self, numbers: Sequence[int]) -> Held:
        """Some rows, without the columns that none of them fills."""
        first = self.mask_BT.shape[1] - max(len(self.ids[number]) - 1 for number in numbers)
        index_B = torch.tensor(numbers, device=self.model.device)
        return [(layer.keys[index_B, :, first:], layer.values[index_B, :, first:])
                for layer in self.cache.layers]  # fmt: skip

    def _read(self, prompts: Sequence[Sequence[int]], start: int) -> Iterator[Held]:
        """Prompts from ``start`` but for their last tokens; those of one length together."""
        width = max(len(prompts[-1]) - 1, 1)
        cache = self._begun(len(prompts)) if start else empty_cache(self.model)
        if width > start:
            rest = [[*prompt[start:-1], *[0] * (width + 1 - len(prompt))] for prompt in prompts]
            self._feed(rest, cache)
        first = 0
        for length, same in groupby(prompts, key=len):
            rows = slice(first, first := first + len(list(same)))
            yield [(layer.keys[rows, :, : length - 1], layer.values[rows, :, : length - 1])
                   for layer in cache.layers]  # fmt: skip

    def _begun(self, rows: int) -> Cache:
        """A cache in which each row holds what is shared."""
        cache = empty_cache(self.model)
        if not self._beginning:
            alone = empty_cache(self.model)
            self._feed([self.shared], alone)
            self._beginning = [(layer.keys, layer.values) for layer in alone.layers]
        for layer, (keys, values) in zip(cache.layers, self._beginning, strict=True):
            every = (rows, -1, -1, -1)
            layer.hold(keys.expand(every), values.expand(every), len(self.shared))
        return cache

    def _feed(self, rows: list[list[int]], cache: Cache) -> None:
        tokens_BT = torch.tensor(rows, device=self.model.device)
        self.model(tokens_BT, past_key_values=cache, use_cache=True, logits_to_keep=NO_LOGITS)


def can_hold(model: Any) -> bool:
    """Whether all that a model remembers of a text are keys and values of its tokens."""
    layers = DynamicCache(config=model.config).layers
    return all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers)


def empty_cache(model: Any) -> Cache:
    """One whose layers all keep everything."""
    layers = DynamicCache(config=model.config).layers
    return Cache(layers=[RoomyLayer() for _ in layers])


def groups(
    prompts: Sequence[Sequence[int]], shared: int, most: int = READ_AT_ONCE
) -> Iterator[list[Sequence[int]]]:
    """Prompts, each at least as long as the one before, in groups that are read at once."""
    group: list[Sequence[int]] = []
    for prompt in prompts:
        if group and (len(prompt) - shared) * (len(group) + 1) > most:
            yield group
            group = []
        group.append(prompt)
    if group:
        yield group


def side_by_side(parts: Sequence[Tensor], width: int) -> Tensor:
    """Rows of different lengths in one tensor with room behind them; all end at ``width``."""
    _, heads, _, values = parts[0].shape
    out = parts[0].new_empty(sum(map(len, parts)), heads, width + ROOM, values)
    first = 0
    for part in parts:
        rows, start = slice(first, first := first + len(part)), width - part.shape[-2]
        out[rows, :, :start] = 0  # masked, and still multiplied by
        out[rows, :, start:width] = part
    return out
