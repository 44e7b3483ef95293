"""Many prompts at once, for evaluation: the same tokens as one at a time, sooner.

Prompts of one batch are padded on the left, so that every row's next token is in the last column;
padding is masked and takes no position. transformers' ``generate`` does that. Prompts of similar
length go together, since the shortest of a batch costs as much as the longest.

Greedy only. A row's logits differ from those of the row alone in the last bits, because a product
of other shapes is summed in another order; two tokens that close are rare, and then equally good.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fourge.chat.conversation import Template, ids_of
from fourge.chat.finite import require_finite
from fourge.chat.session import context_of
from fourge.chat.stream import HALF
from fourge.core.errors import DataError
from fourge.data.records import Message

Progress = Callable[[int, int], None]  # answered, of how many


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model said to one prompt."""

    text: str
    ids: tuple[int, ...]
    stopped: bool  # by itself


def reply_to_all(
    model: Any,
    template: Template,
    conversations: Sequence[Sequence[Message]],
    *,
    max_tokens: int = 64,
    batch: int = 32,
    progress: Progress | None = None,
) -> list[Reply]:
    """The greedy reply to each conversation, in their order; the last message of each is a user's.

    Raises:
        DataError: a conversation is too long, or the template cannot write it.
        FormatError: the model's logits are not finite.
    """
    rows = [ids_of(template.prompt(messages)) for messages in conversations]
    _require_room(rows, context_of(model.config, None), max_tokens)
    replies: dict[int, Reply] = {}
    for numbers in _batches(rows, batch):
        said = _generate(model, [rows[n] for n in numbers], template, max_tokens)
        for number, (ids, stopped) in zip(numbers, said, strict=True):
            text = template.said_after(rows[number], ids).rstrip(HALF)
            said_text = template.content(conversations[number], text)
            replies[number] = Reply(said_text, tuple(ids), stopped)
        if progress:
            progress(len(replies), len(rows))
    return [replies[number] for number in range(len(rows))]


def _require_room(rows: Sequence[Sequence[int]], context: int, max_tokens: int) -> None:
    for number, row in enumerate(rows, 1):
        if len(row) + max_tokens > context:
            raise DataError(
                f"Conversation {number} has {len(row)} tokens and its answer up to {max_tokens}.",
                why=f"the model has room for {context}",
                fix="shorten it, or ask for fewer tokens",
            )


def _batches(rows: Sequence[Sequence[int]], batch: int) -> Iterator[list[int]]:
    """The numbers of rows that go together: neighbours in length."""
    order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
    for start in range(0, len(order), batch):
        yield order[start : start + batch]


@torch.no_grad()
def _generate(
    model: Any, rows: Sequence[Sequence[int]], template: Template, max_tokens: int
) -> list[tuple[list[int], bool]]:
    """Each row's new tokens up to the stop token, and whether there was one."""
    from transformers import GenerationConfig, LogitsProcessorList

    width = max(map(len, rows))
    stops = template.stop_ids(model.config)
    pad = min(stops, default=0)  # any token will do: it is masked
    tokens_BT = torch.tensor([[pad] * (width - len(row)) + list(row) for row in rows])
    mask_BT = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])

    def check(tokens_BT: Tensor, scores_BV: Tensor) -> Tensor:
        require_finite(scores_BV, model, tokens_BT[0].tolist())
        return scores_BV

    config = GenerationConfig(
        max_new_tokens=max_tokens, do_sample=False, eos_token_id=sorted(stops), pad_token_id=pad
    )
    out_BT = model.generate(
        tokens_BT.to(model.device),
        attention_mask=mask_BT.to(model.device),
        generation_config=config,
        logits_processor=LogitsProcessorList([check]),
    )
    return [_upto_stop(row, stops) for row in out_BT[:, width:].tolist()]


def _upto_stop(ids: list[int], stops: frozenset[int]) -> tuple[list[int], bool]:
    end = next((n for n, token in enumerate(ids) if token in stops), None)
    return (ids, False) if end is None else (ids[:end], True)
