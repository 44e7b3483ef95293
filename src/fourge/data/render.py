"""A conversation as the tokens a model reads, and which of them it is taught to say.

The text is made by the model's own chat template, once, whole. An answer is what stands in it
between two points that the template itself shows:

    template(turns before the answer, with the generation prompt)    <- what inference feeds
    template(turns up to the answer)    = that + answer + stop token + rest, often a newline

Targets are the answer and the stop token. Without the stop token in the lesson a model never
learns to end; the rest is never said by a model, for it has stopped. Where the stop token is
follows from rendering a known word in the answer's place: what follows that word is the tail
of every answer, and the first special token in it is the stop.

A template may write history differently from news (Qwen3 drops earlier thoughts; Mistral moves
the system text). An earlier answer is taught only if the whole text holds it just as it would
have been said in its turn, after just the prompt it would have had; others are context. The last
answer always is as it would be said, or the row is refused.

Tokens are cut where inference would cut them: the prompt's tokens are those of the prompt alone.
If the whole text merges a token across the boundary, the two sides are tokenised apart. This
compares token numbers; offsets are not asked for, because a tokenizer that trims them puts the
newline before an answer inside it.

Not done here: a template that writes today's date is a different lesson each day. Where that
matters, its own argument (often ``date_string``) goes into ``template_arguments``.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fourge.core.errors import ConfigError, DataError, first_line
from fourge.data.records import Example, Message

_PROBE = "0fourge0"
_OURS = ("add_generation_prompt", "continue_final_message", "conversation", "tokenize")


@dataclass(frozen=True, slots=True)
class Rendered:
    """Tokens of one conversation. The first can never be a lesson: nothing stands before it."""

    token: tuple[int, ...]
    is_target: tuple[bool, ...]  # of each token: is the model taught to say it
    source: str
    untaught: int = 0  # answers that are only context, because the template rewrites them

    def __post_init__(self) -> None:
        if len(self.token) != len(self.is_target):
            raise DataError(
                f"{self.source}: {len(self.token)} tokens, {len(self.is_target)} target marks"
            )
        if not any(self.is_target[1:]):
            raise DataError(f"{self.source}: no token is left to be learned")


class Renderer:
    """A tokenizer and the arguments of its chat template, ready for any number of examples."""

    def __init__(self, tokenizer: Any, template_arguments: Mapping[str, Any] | None = None) -> None:
        self._tokenizer = tokenizer  # transformers' own object
        self._arguments = dict(template_arguments or {})
        if not getattr(tokenizer, "chat_template", None):
            raise DataError(
                "The tokenizer has no chat template.",
                why="how a model marks who speaks is its own; none can be guessed",
                fix="use the instruct version of the model, or put its chat_template.jinja "
                "into the model's folder",
            )
        for name in _OURS:
            if name in self._arguments:
                raise ConfigError(f"The template argument {name!r} is set by the rendering itself.")
        self._special = special_tokens(tokenizer)

    def render(self, example: Example) -> Rendered:
        """The tokens of a conversation and its targets.

        Raises:
            DataError: the template refuses the turns, does not end an answer with a stop token,
                or does not write the last answer after its own generation prompt; or a text
                holds the text of a special token.
        """
        try:
            return self._render(example)
        except DataError as error:
            problem = f"{example.source}: {error.problem}"
            raise DataError(problem, why=error.why, fix=error.fix) from error

    def _render(self, example: Example) -> Rendered:
        self.refuse_special_text(example.turns)
        text = self.text(example.turns)
        spans: list[int] = []  # start, end, start, end, ...: positions in the text
        untaught = 0
        for count, turn in enumerate(example.turns, 1):
            if turn.role != "assistant":
                continue
            prompt, said = self._said(example.turns[:count])
            if said.startswith(prompt) and text.startswith(said):
                spans += [len(prompt), len(said)]
            elif count < len(example.turns):
                untaught += 1
            else:
                raise DataError(
                    "the chat template does not write the answer after its generation prompt",
                    why=f"it asks with {prompt[-40:]!r} and writes {said[-80:]!r}",
                    fix="give template_arguments under which both agree (for a thinking model "
                    "often enable_thinking: false), or correct the template",
                )
        token, places = self._tokens(text, spans)
        is_target = [False] * len(token)
        for start, end in zip(places[::2], places[1::2], strict=True):
            is_target[start:end] = [True] * (end - start)
        return Rendered(tuple(token), tuple(is_target), example.source, untaught)

    def _said(self, turns: Sequence[Message]) -> tuple[str, str]:
        """What inference feeds before the last turn, and the text up to the turn's stop token."""
        _, tail = self.around_answer(turns[:-1])
        text = self.text(turns)
        if not text.endswith(tail):
            raise _not_as_it_stands()
        stop = self.stop_in(tail)
        if not stop:
            raise DataError(
                "the chat template writes no stop token after the answer",
                why=f"after it comes {tail!r}; a model that is never taught to stop never stops",
                fix="add the model's end-of-turn token to the template, and make sure that the "
                "tokenizer counts it as special",
            )
        prompt = self.text(turns[:-1], add_generation_prompt=True)
        return prompt, text[: len(text) - len(tail) + stop.end()]

    def around_answer(self, turns: Sequence[Message]) -> tuple[str, str]:
        """All that the template writes before and after an answer to these turns.

        Raises:
            DataError: it does not write the answer as it stands, or refuses the turns.
        """
        known = self.text([*turns, Message("assistant", _PROBE)])
        head, found, tail = known.rpartition(_PROBE)
        if not found:
            raise _not_as_it_stands()
        return head, tail

    def stop_in(self, tail: str) -> re.Match[str] | None:
        """The stop token: the first special one in what follows an answer."""
        return self._special.search(tail)

    def text(self, turns: Sequence[Message], *, add_generation_prompt: bool = False) -> str:
        """What the template writes for these turns.

        Raises:
            DataError: it refuses them.
        """
        messages = [{"role": turn.role, "content": turn.content} for turn in turns]
        try:
            text = self._tokenizer.apply_chat_template(
                messages,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                **self._arguments,
            )
        except Exception as error:  # a template raises whatever it likes
            raise DataError(
                "the chat template refuses these turns",
                why=first_line(error),
                fix="change the turns to what the model's template knows",
            ) from error
        return str(text)

    def refuse_special_text(self, turns: Sequence[Message]) -> None:
        """Raise for a text that holds the text of a special token."""
        for turn in turns:
            if found := self._special.search(turn.content):
                raise DataError(
                    f"the {turn.role}'s text holds {found.group()!r}",
                    why="the tokenizer would read it as the special token itself, and a text "
                    "could then end a turn or speak for another",
                    fix="take it out, or write it differently (with a space inside)",
                )

    def _tokens(self, text: str, marks: Sequence[int]) -> tuple[list[int], list[int]]:
        """Tokens of the text, and how many of them stand before each marked position."""
        done: list[int] = []
        places: list[int] = []
        cut, rest = 0, self.encode(text)
        for mark in marks:
            head = self.encode(text[cut:mark])
            places.append(len(done) + len(head))
            if rest[: len(head)] != head:
                done += head
                cut, rest = mark, self.encode(text[mark:])
        return done + rest, places

    def encode(self, text: str) -> list[int]:
        """The tokens of a text that the template wrote."""
        # The template has written every special token there is to be, bos among them.
        return list(self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def truncate_left(rendered: Rendered, max_tokens: int) -> Rendered:
    """The last ``max_tokens`` tokens: an answer's end and its stop token are what must stay.

    Raises:
        DataError: no target is left.
    """
    if len(rendered.token) <= max_tokens:
        return rendered
    is_target = rendered.is_target[-max_tokens:] if max_tokens > 0 else ()
    if not any(is_target[1:]):
        raise DataError(
            f"{rendered.source}: nothing to learn is left in the last {max_tokens} tokens",
            why=f"it has {len(rendered.token)}",
            fix="raise data.max_tokens",
        )
    return replace(rendered, token=rendered.token[-max_tokens:], is_target=is_target)


def _not_as_it_stands() -> DataError:
    return DataError(
        "the chat template does not write an answer as it stands",
        why="where the answer ends in the text cannot be told",
        fix="correct the chat template",
    )


def special_tokens(tokenizer: Any) -> re.Pattern[str]:
    added = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    words = sorted(added | set(tokenizer.all_special_tokens), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, words)) or r"(?!)")
