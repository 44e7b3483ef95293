r"""A conversation as tokens: what the template writes, with what the model said left as it said it.

The text is always what the chat template gives for the whole conversation. Its tokens are made of
spans, in turn fed (tokenised by us) and said (chosen by the model):

    <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n | Hel lo | <|im_end|>\n ...
    fed                                                     | said   | fed

A model may say "Hello" in other tokens than the tokenizer would choose. Its own are kept for as
long as the template still writes their text in that place; then the cache needs nothing but the
new. Where the template writes history differently from news (Qwen3 drops earlier thoughts, many
trim white space), the tokens up to the first difference are kept, and the text after it is
tokenised. A fed span begins with the stop token that ends the answer before it, which no tokenizer
merges with anything: cutting there changes no token.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from fourge.chat.stream import CONTEXT, HALF, text_after
from fourge.core.errors import DataError
from fourge.data.records import Message
from fourge.data.render import Renderer


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of the text and its tokens."""

    text: str
    ids: tuple[int, ...]
    said: bool = False  # by the model


def ids_of(spans: Sequence[Span]) -> list[int]:
    return [token for span in spans for token in span.ids]


class Template:
    """A tokenizer and its template: messages into spans, a reply's text into a message."""

    def __init__(self, tokenizer: Any, template_arguments: Mapping[str, Any] | None = None) -> None:
        """Raise DataError for a template that is missing or broken."""
        self.tokenizer, self.renderer = tokenizer, Renderer(tokenizer, template_arguments)
        _, tail = self.renderer.around_answer([Message("user", "?")])
        stop = self.renderer.stop_in(tail)
        self._stop = stop and tokenizer.convert_tokens_to_ids(stop.group())

    def question(self, text: str) -> Message:
        """What a user says.

        Raises:
            DataError: nothing, or the text of a special token.
        """
        if not text.strip():
            raise DataError("The prompt is empty.", fix="say something")
        message = Message("user", text)
        self.renderer.refuse_special_text([message])
        return message

    def prompt(self, messages: Sequence[Message], known: Sequence[Span] = ()) -> list[Span]:
        """The conversation up to where the model speaks."""
        text = self.renderer.text(messages, add_generation_prompt=True)
        return self._spans(text, known)

    def closed(self, messages: Sequence[Message], known: Sequence[Span] = ()) -> list[Span]:
        """The conversation with its last answer ended."""
        return self._spans(self.renderer.text(messages), known)

    def content(self, messages: Sequence[Message], said: str) -> str:
        """A reply to these messages, without what the template itself puts before an answer.

        Mistral's template writes a space there, which the model therefore says.
        """
        head, _ = self.renderer.around_answer(messages)
        prompt = self.renderer.text(messages, add_generation_prompt=True)
        return said.removeprefix(head.removeprefix(prompt)) if head.startswith(prompt) else said

    def said_after(self, prompt: Sequence[int], ids: Sequence[int]) -> str:
        """The text of tokens that were said after a prompt."""
        return text_after(self.tokenizer, prompt[-CONTEXT:], ids)

    def stop_ids(self, config: Any) -> frozenset[int]:
        """Every token that ends an answer: the template's, the tokenizer's, the config's."""
        listed = getattr(config, "eos_token_id", None)
        found = {*(listed if isinstance(listed, list) else [listed])}
        return frozenset(found | {self._stop, self.tokenizer.eos_token_id}) - {None}

    def _spans(self, text: str, known: Sequence[Span]) -> list[Span]:
        """Spans that make up the text and keep what can be kept of the known ones."""
        kept: list[Span] = []
        rest = text
        for span, following in pairwise([*known, None]):
            assert span is not None, "only the last of the pairs has none"
            if not rest.startswith(span.text) or not (span.said or following):
                if span.said:
                    kept += self._part(span, rest, ids_of(kept))
                break
            kept.append(span)
            rest = rest[len(span.text) :]
        rest = text[sum(len(span.text) for span in kept) :]
        return [*kept, Span(rest, tuple(self.renderer.encode(rest)))] if rest else kept

    def _part(self, span: Span, rest: str, before: Sequence[int]) -> list[Span]:
        """The first tokens of a reply whose text is still there."""

        def text(count: int) -> str:
            return self.said_after(before, span.ids[:count])

        count = agreed(text, len(span.ids), rest)
        return [Span(text(count), span.ids[:count], said=True)] if count else []


def agreed(text: Callable[[int], str], most: int, rest: str) -> int:
    """How many tokens, of which ``text(n)`` is that of the first n, ``rest`` begins with."""

    def differs(count: int) -> bool:  # a half character at the end is not a difference yet
        return not rest.startswith(text(count).rstrip(HALF))

    count = bisect_left(range(1, most + 1), True, key=differs)
    while count and not rest.startswith(text(count)):
        count -= 1
    return count
