"""Conversations side by side in one key-value cache: rows that join, are fed together, and leave.

Each step feeds one token of every row. A row that is done leaves and another joins, so that a step
always has as many rows as it may; otherwise all would wait for the longest answer.

```
        held once    columns of the cache         a step feeds
row 1   p p p p      . . . . p q a b c d e | f    the last token of the prompt
row 2   p p p p      k l m n o u v w x y z | a    a token that was said
row 3                . . p p r s g h q r s | t
```

Rows end in the same column; what is left of a row (``.``) is not looked at. What most prompts begin
with (a system's text, above all) is computed and held once, for all that do (``model/beside.py``).

A prompt is read but for its last token, in groups whose rows begin in the same column: behind a
row's end nothing is looked at. Then the rows are moved to end together. The last token is the first
one to be stepped with; its logits choose the first token of the answer.

Every layer keeps all its columns, also one that looks at a window only.

Shapes: B rows, T columns, P shared tokens, H key-value heads, D values of a head, V tokens of the
vocabulary.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from fourge.chat.finite import all_finite, require_finite
from fourge.chat.room import ROOM, RoomyLayer
from fourge.model.attention import SightMask, attending_by_sight, takes_sight
from fourge.model.beside import Beside, Pair

READ_AT_ONCE = 1024  # tokens: enough for products at full speed, few enough for the cache
NO_LOGITS = torch.empty(0, dtype=torch.long)
Held = list[Pair]  # keys and values of some rows [B, H, T, D], layer by layer


class Rows:
    """The rows of one model. ``ids`` is what each one has been given, its last token unfed.

    What prompts have in common, ``shared``, is read once.
    """

    def __init__(self, model: Any, shared: Sequence[int]) -> None:
        self.model, self.shared = model, list(shared)
        self.ids: list[list[int]] = []
        self.cache = empty_cache(model)
        self._begins: list[int] = []  # with how many shared tokens each row begins
        self._beginning: Held = []  # keys and values of what is shared [H, P, D]
        self._mask = self._mask_of([], [])

    @torch.no_grad()
    def step(self) -> Tensor:
        """Feed the last token of each row; the logits [B, V] after it.

        Raises:
            FormatError: a logit is not finite.
        """
        device = self.model.device
        tokens_B1 = torch.tensor([[ids[-1]] for ids in self.ids], device=device)
        positions_B1 = torch.tensor([[len(ids) - 1] for ids in self.ids], device=device)
        logits_BV = self._call(
            tokens_B1, self.cache, position_ids=positions_B1, attention_mask=self._mask
        )[:, -1]
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
        begins = [self._begins[number] for number in stay]
        for shares, sharing in groupby(join, key=self.begins_so):
            prompts, start = list(sharing), len(self.shared) if shares else 0
            begins += [start] * len(prompts)
            for group in groups(prompts, start):
                parts += self._read(group, start)
        self.ids = [self.ids[number] for number in stay] + [list(prompt) for prompt in join]
        self._begins = begins
        own = self._own()
        width = max(own, default=0)
        self._mask = self._mask_of(begins, [width - count for count in own])
        self.cache = empty_cache(self.model)
        for layer, *held in zip(self.cache.layers, *parts, strict=True):
            keys, values = zip(*held, strict=True)
            layer.hold(side_by_side(keys, width), side_by_side(values, width), width)

    def _own(self) -> list[int]:
        """How many columns each row fills."""
        return [len(ids) - 1 - begins for ids, begins in zip(self.ids, self._begins, strict=True)]

    def _kept(self, numbers: Sequence[int]) -> Held:
        """Some rows, without the columns that none of them fills."""
        own = self._own()
        first = self.cache.get_seq_length() - max(own[number] for number in numbers)
        index_B = torch.tensor(numbers, device=self.model.device)
        return [(layer.keys[index_B, :, first:], layer.values[index_B, :, first:])
                for layer in self.cache.layers]  # fmt: skip

    def _read(self, prompts: Sequence[Sequence[int]], start: int) -> Iterator[Held]:
        """Prompts from ``start`` but for their last tokens; those of one length together."""
        cache, width = empty_cache(self.model), max(len(prompts[-1]) - 1 - start, 1)
        end = start + width + 1
        rest = [[*prompt[start:-1], *[0] * (end - len(prompt))] for prompt in prompts]
        self._feed(rest, start, cache)
        first = 0
        for length, same in groupby(prompts, key=len):
            rows, own = slice(first, first := first + len(list(same))), length - 1 - start
            yield [(layer.keys[rows, :, :own], layer.values[rows, :, :own])
                   for layer in cache.layers]  # fmt: skip

    def _feed(self, rows: list[list[int]], start: int, cache: Cache) -> None:
        """Read rows that begin with so many shared tokens, or with none."""
        tokens_BT = torch.tensor(rows, device=self.model.device)
        given: dict[str, Any] = {}
        if start:
            self._read_shared()
            count, width = tokens_BT.shape
            places_T = torch.arange(start, start + width, device=self.model.device)
            given["position_ids"] = places_T.expand(count, -1)
            given["attention_mask"] = self._mask_of([start] * count, [0] * count)
        self._call(tokens_BT, cache, logits_to_keep=NO_LOGITS, **given)

    def _read_shared(self) -> None:
        if not self._beginning:
            cache = empty_cache(self.model)
            self._feed([self.shared], 0, cache)
            self._beginning = [(layer.keys[0].contiguous(), layer.values[0].contiguous())
                               for layer in cache.layers]  # fmt: skip

    def _mask_of(self, begins: Sequence[int], starts: Sequence[int]) -> SightMask:
        of_long = {"dtype": torch.long, "device": self.model.device}
        begins_B, starts_B = (torch.tensor(each, **of_long) for each in (begins, starts))
        return SightMask.of(Beside(self._beginning, begins_B, starts_B))

    def _call(self, tokens_BT: Tensor, cache: Cache, **given: Any) -> Tensor:
        with attending_by_sight(self.model):
            output = self.model(tokens_BT, past_key_values=cache, use_cache=True, **given)
        logits_BTV: Tensor = output.logits
        return logits_BTV


def can_hold(model: Any) -> bool:
    """Whether all that a model remembers of a text are keys and values of its tokens."""
    layers = DynamicCache(config=model.config).layers
    of_tokens = all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers)
    return of_tokens and takes_sight(model)


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
        out[rows, :, :start] = 0  # not looked at, but where it is masked multiplied by
        out[rows, :, start:width] = part
    return out
