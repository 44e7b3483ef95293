"""Does a model still know what it read, at every depth and length, and what does remembering cost?

A secret is hidden in a long text (``haystack``), which is fed in chunks into one cache; then the
question is asked. Prompts differ only from the secret on, and go from the deepest to the
shallowest, so that what is common to two of them is fed once.

While the cache is first filled the memory of the process is read after every chunk. It should grow
by the same amount with every token: keys and values of all layers, and nothing else. The first
chunk also brings what is there once and stays, and is left out of the account.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from fourge.chat.conversation import Template
from fourge.chat.feed import Feed
from fourge.core.process import resident_bytes, trim_heap
from fourge.evaluate.haystack import Hidden

ANSWER = 32  # tokens of a reply
Progress = Callable[[str, int, int], None]  # what, done, of how many


@dataclass(frozen=True, slots=True)
class Asked:
    """One prompt, and what was said to it."""

    length: int  # as asked for
    tokens: int  # of the prompt
    depth: float
    code: str
    reply: str

    @property
    def found(self) -> bool:
        return self.code in self.reply.lower()


@dataclass(frozen=True, slots=True)
class Held:
    """Memory after so many tokens."""

    tokens: int
    cache: int
    resident: int


@dataclass(frozen=True, slots=True)
class Recall:
    """What was remembered, and what it took."""

    asked: tuple[Asked, ...]
    held: tuple[Held, ...]

    def share(self, *, length: int | None = None, depth: float | None = None) -> float:
        """The share that was found, of all or of one length or depth."""
        found = [
            each.found
            for each in self.asked
            if length in (None, each.length) and depth in (None, each.depth)
        ]
        return sum(found) / len(found)


def depths_of(count: int) -> list[float]:
    """So many depths, evenly from the beginning to the end; one is in the middle."""
    return [at / (count - 1) for at in range(count)] if count > 1 else [0.5]


def recall(
    model: Any, template: Template, hidden: Sequence[Hidden], *, chunk: int, progress: Progress
) -> Recall:
    """Feed each prompt, and ask.

    Raises:
        FormatError: a logit is not finite.
    """
    feed = Feed(model, piece=chunk)
    held = fill(feed, hidden[0].prompt)
    asked = []
    for each in hidden:
        reply = _reply(feed, template, each.prompt)
        asked.append(Asked(each.length, len(each.prompt), each.depth, each.code, reply))
        progress("asking", len(asked), len(hidden))
    return Recall(tuple(asked), tuple(held))


def fill(feed: Feed, prompt: Sequence[int]) -> list[Held]:
    """Feed a prompt in chunks, and say what was held after each."""
    held = []
    for start in range(0, len(prompt), feed.piece):
        feed.feed(prompt[start : start + feed.piece])
        trim_heap()
        held.append(Held(len(feed.ids), feed.nbytes, _in_memory(feed.model.device)))
    return held


def growth(held: Sequence[Held], what: Literal["cache", "resident"]) -> float | None:
    """Bytes that a token adds; None if one chunk was all."""
    if len(held) < 2:
        return None
    first, last = held[0], held[-1]
    return float((getattr(last, what) - getattr(first, what)) / (last.tokens - first.tokens))


def halves(held: Sequence[Held]) -> tuple[float | None, float | None]:
    """What a token adds to the process in the first and in the second half of the text."""
    middle = len(held) // 2
    return growth(held[: middle + 1], "resident"), growth(held[middle:], "resident")


def _in_memory(device: torch.device) -> int:
    cuda = device.type == "cuda"
    return torch.cuda.memory_allocated(device) if cuda else resident_bytes()


def _reply(feed: Feed, template: Template, prompt: Sequence[int]) -> str:
    """The greedy answer."""
    stop = template.stop_ids(feed.model.config)
    logits_V, said = feed.hold(prompt), list[int]()
    while logits_V is not None and len(said) < ANSWER:
        token = int(logits_V.argmax())
        if token in stop:
            break
        said.append(token)
        logits_V = feed.feed([token])[-1]
    return template.said_after(prompt, said)
