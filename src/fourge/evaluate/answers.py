"""A model's answers to many questions at once, greedily decoded.

Greedy, because an answer must be a function of the weights to be worth caching; many at once
(``chat.batch``) moves logits in their last bits only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fourge.chat.batch import Progress, replies_as_they_come
from fourge.chat.conversation import Template
from fourge.data.conversation import Answer, Messages
from fourge.data.records import Message
from fourge.data.render import special_tokens


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
    limits = [max_tokens] * len(conversations)
    found: dict[int, Said] = {}
    for number, said in answers_as_they_come(model, tokenizer, conversations, limits):
        found[number] = said
        if progress:
            progress(len(found), len(conversations))
    return [found[number] for number in range(len(conversations))]


def answers_as_they_come(
    model: Any, tokenizer: Any, conversations: Sequence[Messages], limits: Sequence[int]
) -> Iterator[tuple[int, Said]]:
    """The same, each as soon as it is complete, and with a limit of its own; numbered from 0."""
    asked = [[Message(m["role"], m["content"]) for m in each] for each in conversations]
    for number, reply in replies_as_they_come(model, Template(tokenizer), asked, limits):
        yield number, Said(reply.text.strip(), len(reply.ids), reply.stopped)


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
