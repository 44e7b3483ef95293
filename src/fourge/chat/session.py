"""One conversation with a model: messages, the cache that holds them, and what each turn cost.

A turn feeds the tokens that are not in the cache yet, says token after token, and then feeds what
ends the answer, so that between turns the cache holds exactly what the chat template writes for
the whole conversation. History changes only when a turn is complete: a question that is refused, a
template that breaks or a model that fails leaves the session as it was.

A turn ends by itself, or at the first limit it meets, in which case what was said is kept. If
nothing was said yet the question is withdrawn too.
"""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fourge.chat.conversation import Span, Template, ids_of
from fourge.chat.feed import PIECE, CacheKind, Feed
from fourge.chat.sampling import Chooser, Sampling
from fourge.chat.stream import Stream
from fourge.chat.window import remembered
from fourge.core.errors import ConfigError, DataError
from fourge.core.prefix import common_prefix
from fourge.data.records import Message

Ended = Literal["stop", "stop string", "max tokens", "time", "interrupted", "context"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What ends a turn that does not end by itself."""

    max_tokens: int = 512
    seconds: float | None = None
    stops: tuple[str, ...] = ()
    halt: Callable[[], bool] = field(default=lambda: False, compare=False)  # asked between tokens

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ConfigError(f"max tokens is {self.max_tokens}; it must be 1 or more.")
        if self.seconds is not None and not self.seconds > 0:
            raise ConfigError(f"the time limit is {self.seconds} s; it must be more than 0.")
        if not all(self.stops):
            raise ConfigError("A stop string is empty.", why="every text holds it")


@dataclass(frozen=True, slots=True)
class Piece:
    """One token of a reply, and the text that is sure since it came; at the end text alone."""

    token: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A turn that is over."""

    turn: int
    prompt: str
    reply: str
    ids: tuple[int, ...]  # as the model chose them, without the stop token
    ended: Ended
    kept: bool  # whether question and reply are part of the conversation now
    context: int  # tokens in the cache, with what ends the answer
    fed: int  # tokens of the prompt that were computed
    reused: int  # that were in the cache
    dropped: int  # that were in the cache, and are no longer so in the text
    forgotten: int  # messages dropped to stay inside the window
    prefill_s: float
    decode_s: float


class Session:
    """A conversation that goes on."""

    def __init__(
        self,
        model: Any,
        template: Template,
        *,
        cache: CacheKind = "plain",
        piece: int = PIECE,
        window: int | None = None,
        keep_cache: bool = True,
    ) -> None:
        self.template, self.stop_ids = template, template.stop_ids(model.config)
        self.feed = Feed(model, cache=cache, piece=piece)
        self.context = context_of(model.config, window)
        self.window, self.keep_cache = window, keep_cache
        self.messages: list[Message] = []
        self.spans: list[Span] = []
        self.turns = 0
        self.last: Answer | None = None

    def begin(self, messages: Sequence[Message] = ()) -> None:
        """Start from these messages, with an empty cache.

        Raises:
            DataError: the template does not take them.
        """
        if messages:
            probe = [] if messages[-1].role == "user" else [Message("user", "?")]
            self.template.prompt([*messages, *probe])
        self.messages, self.spans, self.last = list(messages), [], None
        self.feed.reset()

    def say(
        self, text: str, sampling: Sampling | None = None, limits: Limits | None = None
    ) -> Generator[Piece]:
        """Ask, and yield the reply as it is said; then ``last`` tells of it.

        Raises:
            DataError: the question is empty, too long, or nothing that the template takes.
            FormatError: the model's logits are not finite.
        """
        turn = _Turn(self, text, sampling or Sampling(), limits or Limits())
        try:
            yield from turn.pieces()
            turn.end()
        except (GeneratorExit, KeyboardInterrupt, SystemExit):
            turn.ended = "interrupted"  # what was said is kept; the cache catches up later
            turn.keep()
            raise

    def ask(
        self, text: str, sampling: Sampling | None = None, limits: Limits | None = None
    ) -> Answer:
        """Ask, and wait for the whole reply."""
        for _ in self.say(text, sampling, limits):
            pass
        assert self.last is not None, "a turn that ended has an answer"
        return self.last


class _Turn:
    """One turn while it lasts."""

    def __init__(self, session: Session, text: str, sampling: Sampling, limits: Limits) -> None:
        self.session, self.limits = session, limits
        self.start = time.monotonic()
        self.number = session.turns + 1
        question = session.template.question(text)
        everything = [*session.messages, question]
        self.messages = self._remembered(everything)
        self.forgotten = len(everything) - len(self.messages)
        self.spans = session.template.prompt(self.messages, session.spans)
        self.ids = ids_of(self.spans)
        self._require_room()
        if not session.keep_cache:
            session.feed.reset()
        held = session.feed.ids
        self.reused = min(common_prefix(held, self.ids), len(self.ids) - 1)
        self.dropped = len(held) - self.reused
        self.stream = Stream(session.template.tokenizer, self.ids, limits.stops)
        self.chooser = Chooser(sampling, self.number, session.feed.model.device)
        self.ended: Ended = "stop"
        self.prefilled = self.start

    def _remembered(self, messages: list[Message]) -> list[Message]:
        session = self.session
        if session.window is None:
            return messages

        def tokens(some: Sequence[Message]) -> int:
            return len(ids_of(session.template.prompt(some)))

        return remembered(messages, tokens, session.window, self.limits.max_tokens)

    def _require_room(self) -> None:
        limit = self.session.context
        if len(self.ids) >= limit:
            raise DataError(
                f"The conversation has {len(self.ids)} tokens; there is room for {limit}.",
                why="and an answer needs some too",
                fix="ask less, start anew (/reset), or let old turns be forgotten (--window)",
            )

    def pieces(self) -> Iterator[Piece]:
        """The tokens of the reply, up to what ends it."""
        session, feed = self.session, self.session.feed
        logits_V = feed.hold(self.ids, self._halted)
        self.prefilled = time.monotonic()
        while logits_V is not None:
            token = self.chooser.choose(logits_V, feed.ids)
            if token in session.stop_ids:
                break
            yield Piece(token, self.stream.push(token))
            if self._over():
                break
            logits_V = feed.feed([token])[-1]
        if held := self.stream.finish():
            yield Piece(None, held)

    def _halted(self) -> bool:
        seconds = self.limits.seconds
        if self.limits.halt():
            self.ended = "interrupted"
            return True
        if seconds is not None and time.monotonic() - self.start >= seconds:
            self.ended = "time"
            return True
        return False

    def _over(self) -> bool:
        count = len(self.stream.ids)
        if self.stream.stopped:
            self.ended = "stop string"
        elif count >= self.limits.max_tokens:
            self.ended = "max tokens"
        elif len(self.ids) + count >= self.session.context:
            self.ended = "context"
        else:
            return self._halted()
        return True

    def keep(self) -> bool:
        """Make the turn part of the conversation, unless it ended before it was answered."""
        session, said = self.session, self.stream
        said.finish()
        kept = bool(said.ids) or self.ended == "stop"
        reply = session.template.content(self.messages, said.text) if kept else ""
        if kept:
            self.spans += self._said()
            session.messages = [*self.messages, Message("assistant", reply)]
            session.spans, session.turns = self.spans, self.number
        session.last = Answer(
            self.number, self.messages[-1].content, reply, tuple(said.ids), self.ended, kept,
            len(session.feed.ids), len(self.ids) - self.reused, self.reused, self.dropped,
            self.forgotten, self.prefilled - self.start, time.monotonic() - self.prefilled,
        )  # fmt: skip
        return kept

    def _said(self) -> list[Span]:
        """What the model said, with all its tokens: a stop string may have cut its text."""
        ids = tuple(self.stream.ids)
        text = self.session.template.said_after(self.ids, ids)
        return [Span(text, ids, said=True)] if ids else []

    def end(self) -> None:
        """Keep the turn, and feed what ends the answer."""
        session = self.session
        if self.keep():
            session.spans = session.template.closed(session.messages, self.spans)
            session.feed.hold(ids_of(session.spans))
            assert session.last is not None, "kept turns are told of"
            session.last = replace(session.last, context=len(session.feed.ids))


def context_of(config: Any, window: int | None) -> int:
    """How many tokens a conversation may have.

    Raises:
        ConfigError: the window is larger than what the model was made for.
    """
    positions = getattr(config, "max_position_embeddings", None) or 1 << 30
    if window is not None and not 16 <= window <= positions:
        raise ConfigError(f"The window is {window} tokens; it must be from 16 to {positions}.")
    return window or positions
