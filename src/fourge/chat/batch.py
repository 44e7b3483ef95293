"""Many prompts at once, for evaluation: the same tokens as one at a time, sooner.

A product of many rows costs little more than one of few, so a step feeds as many conversations as
``batch`` says (``rows``). Those that may say most begin first, so that few are left at the end.

Rows that are done stay until an eighth of them is: to leave, or to join, the whole cache is copied.

A model that remembers more of a text than keys and values (a recurrent state), or whose attention
is not ``sdpa``, reads and answers one prompt after the other.

Greedy only. A row's logits differ from those of the row alone in the last bits, because products
of prompts are summed in another order for other shapes, and attention in another than a session's;
two tokens that close are rare, and then equally good.
"""

import math
from bisect import bisect
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from fourge.chat.conversation import Template, ids_of
from fourge.chat.feed import Feed
from fourge.chat.rows import Rows, can_hold
from fourge.chat.session import context_of
from fourge.chat.stream import HALF
from fourge.core.errors import DataError
from fourge.core.prefix import common_prefix
from fourge.data.records import Message

Progress = Callable[[int, int], None]  # answered, of how many
BATCH = 128  # as many as are multiplied by codes together: a tenth faster than 64, same answers


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model said to one prompt."""

    text: str
    ids: tuple[int, ...]
    stopped: bool  # by itself


@dataclass(frozen=True, slots=True)
class _Asked:
    """One prompt, and what was said to it so far."""

    number: int
    prompt: tuple[int, ...]
    most: int  # tokens
    said: list[int]

    def takes(self, token: int, stops: frozenset[int]) -> bool:
        """Whether the answer goes on after this token."""
        self.said.append(token)
        return token not in stops and len(self.said) < self.most


def reply_to_all(
    model: Any,
    template: Template,
    conversations: Sequence[Sequence[Message]],
    *,
    max_tokens: int = 64,
    batch: int = BATCH,
    progress: Progress | None = None,
) -> list[Reply]:
    """The greedy reply to each conversation, in their order; the last message of each is a user's.

    Raises:
        DataError: a conversation is too long, or the template cannot write it.
        FormatError: the model's logits are not finite.
    """
    limits = [max_tokens] * len(conversations)
    replies: dict[int, Reply] = {}
    for number, reply in replies_as_they_come(model, template, conversations, limits, batch=batch):
        replies[number] = reply
        if progress:
            progress(len(replies), len(conversations))
    return [replies[number] for number in range(len(conversations))]


def replies_as_they_come(
    model: Any,
    template: Template,
    conversations: Sequence[Sequence[Message]],
    limits: Sequence[int],
    *,
    batch: int = BATCH,
) -> Iterator[tuple[int, Reply]]:
    """The same, each as soon as it is complete and with a limit of its own; numbered from 0."""
    prompts = [tuple(ids_of(template.prompt(messages))) for messages in conversations]
    _require_room(prompts, limits, context_of(model.config, None))
    stops = template.stop_ids(model.config)
    asked = [_Asked(n, *each, []) for n, each in enumerate(zip(prompts, limits, strict=True))]
    together = (
        _together(model, asked, stops, batch) if can_hold(model) else _in_turn(model, asked, stops)
    )
    for each in together:
        stopped = each.said[-1] in stops
        ids = each.said[:-1] if stopped else each.said
        text = template.said_after(each.prompt, ids).rstrip(HALF)
        said = template.content(conversations[each.number], text)
        yield each.number, Reply(said, tuple(ids), stopped)


def _require_room(prompts: Sequence[Sequence[int]], limits: Sequence[int], context: int) -> None:
    for number, (prompt, most) in enumerate(zip(prompts, limits, strict=True), 1):
        if len(prompt) + most > context:
            raise DataError(
                f"Conversation {number} has {len(prompt)} tokens and its answer up to {most}.",
                why=f"the model has room for {context}",
                fix="shorten it, or ask for fewer tokens",
            )


def _together(
    model: Any, asked: Sequence[_Asked], stops: frozenset[int], batch: int
) -> Iterator[_Asked]:
    """Answer side by side."""
    waiting = deque(sorted(asked, key=lambda each: (-each.most, len(each.prompt))))
    rows, seated = Rows(model, shared_beginning([each.prompt for each in asked])), list[_Asked]()

    def cost(each: _Asked) -> tuple[bool, int]:
        return not rows.begins_so(each.prompt), len(each.prompt)

    on = set[int]()  # numbers of those that go on
    while waiting or on:
        if not on or len(seated) - len(on) >= max(1, batch // 8):
            stay = [at for at, each in enumerate(seated) if each.number in on]
            room = min(batch - len(stay), len(waiting))
            join = sorted((waiting.popleft() for _ in range(room)), key=cost)
            rows.change(stay, [each.prompt for each in join])
            seated = [*(seated[at] for at in stay), *join]
            on |= {each.number for each in join}
        tokens = rows.step().argmax(-1).tolist()
        for ids, each, token in zip(rows.ids, seated, tokens, strict=True):
            if each.number not in on:
                continue
            ids.append(token)
            if not each.takes(token, stops):
                on.remove(each.number)
                yield each


def shared_beginning(prompts: Sequence[Sequence[int]]) -> Sequence[int]:
    """The beginning, each time with more behind it, that saves most if it is read once."""
    ordered = sorted(map(tuple, prompts))
    best, saved = tuple[int, ...](), 0
    for one, other in pairwise(ordered):
        shared = one[: min(common_prefix(one, other), len(one) - 1)]
        having = bisect(ordered, (*shared, math.inf)) - bisect(ordered, shared)
        if len(shared) * (having - 1) > saved:
            best, saved = shared, len(shared) * (having - 1)
    return best


def _in_turn(model: Any, asked: Sequence[_Asked], stops: frozenset[int]) -> Iterator[_Asked]:
    """Answer one after the other."""
    for each in asked:
        feed = Feed(model)
        logits_V = feed.hold(each.prompt)
        assert logits_V is not None, "nobody halts it"
        while each.takes(token := int(logits_V.argmax()), stops):
            logits_V = feed.feed([token])[-1]
        yield each
