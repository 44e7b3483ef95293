"""A model's answers to many questions at once, greedily decoded.

Greedy, because an answer must be a function of the weights to be worth caching; many at once
(``chat.batch``) moves logits in their last bits only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fourge.chat.batch import Progress, reply_to_all
from fourge.chat.conversation import Template
from fourge.data.conversation import Answer, Messages
from fourge.data.records import Message
from fourge.data.render import special_tokens

BATCH = 32


@dataclass(frozen=True, slots=True)
class Said:
    """What a model answered."""

    text: str
    tokens: int
    stopped: bool  # by itself, before the limit


def answer_all(
    model: Any,
    tokenizer: Any,
    conversations: Sequence[Messages],
    *,
    max_tokens: int,
    progress: Progress | None = None,
) -> list[Said]:
    """The answers, in the order of the conversations.

    Raises:
        DataError: the model has no chat template, or a conversation is too long.
    """
    asked = [[Message(m["role"], m["content"]) for m in each] for each in conversations]
    replies = reply_to_all(
        model, Template(tokenizer), asked, max_tokens=max_tokens, batch=BATCH, progress=progress
    )
    return [Said(reply.text.strip(), len(reply.ids), reply.stopped) for reply in replies]


def answering(
    model: Any, tokenizer: Any, max_tokens: int, progress: Progress | None = None
) -> Answer:
    """A model as a function from conversations to texts that can be taught.

    A text with a special token in it would end a turn where it is read again: it counts as none.
    """
    special = special_tokens(tokenizer)

    def answer(conversations: Sequence[Messages]) -> list[str]:
        said = answer_all(model, tokenizer, conversations, max_tokens=max_tokens, progress=progress)
        return ["" if special.search(each.text) else each.text for each in said]

    return answer
