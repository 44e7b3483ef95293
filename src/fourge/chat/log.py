"""The record of a session: events in JSONL to run again, and the same as text to read.

    {"kind": "session", "model": ..., "path": ..., "dtype": ..., "cache": ..., "version": ...}
    {"kind": "history", "messages": [...], "turns": 0}      the conversation is this from now on
    {"kind": "turn", "prompt": ..., "reply": ..., "ids": [...], "sampling": {...}, ...}

Each event is written when it happens, so a session whose terminal or process is gone has lost at
most the turn it was in.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fourge.chat.sampling import Sampling
from fourge.chat.session import Answer, Limits
from fourge.core.errors import FormatError, OutputError
from fourge.core.events import EventLog, read_events
from fourge.core.files import write_errors
from fourge.data.records import Message


class ChatLog:
    """Writes ``<stem>.jsonl`` and ``<stem>.txt``."""

    def __init__(self, stem: Path, **about: Any) -> None:
        """Raise OutputError if they cannot be written, or are there already."""
        self.path, self._text = named(stem, ".jsonl"), named(stem, ".txt")
        for path in (self.path, self._text):
            with write_errors(path):
                exists = path.exists()
            if exists:
                raise OutputError(f"{path} exists.", fix="choose another name for the log")
        self._events = EventLog(self.path, stem.name)
        self._events.write("session", **about)
        self._append(time.strftime("==== %Y-%m-%d %H:%M:%S ====\n"))

    def history(self, messages: Sequence[Message], turns: int) -> None:
        """The conversation was put in the place of what it was."""
        self._events.write("history", messages=[asdict(m) for m in messages], turns=turns)
        said = "".join(f"[{m.role}] {m.content}\n" for m in messages)
        self._append(f"---- a new conversation ----\n{said}")

    def turn(self, answer: Answer, sampling: Sampling, limits: Limits) -> None:
        """A turn is over."""
        limit = {"max_tokens": limits.max_tokens, "seconds": limits.seconds, "stops": limits.stops}
        self._events.write("turn", **asdict(answer), sampling=asdict(sampling), limits=limit)
        ending = "" if answer.ended == "stop" else f" ({answer.ended})"
        self._append(f"[user] {answer.prompt}\n[assistant] {answer.reply}{ending}\n")

    def _append(self, text: str) -> None:
        with write_errors(self._text), self._text.open("a", encoding="utf-8") as file:
            file.write(text)


def named(stem: Path, suffix: str) -> Path:
    return stem.with_name(stem.name + suffix)


@dataclass(frozen=True, slots=True)
class History:
    """From here on the conversation was this."""

    messages: tuple[Message, ...]
    turns: int


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that was asked, how, and what was answered."""

    prompt: str
    reply: str
    ids: tuple[int, ...]
    ended: str
    kept: bool
    sampling: Sampling
    limits: Limits


def read_log(path: Path) -> Iterator[History | Asked]:
    """What happened in a session.

    Raises:
        FormatError: there is no log, or an event of it is not one.
        DataError: a message has a role that there is not.
    """
    for event in read_events(path):
        try:
            if event["kind"] == "history":
                messages = tuple(Message(m["role"], m["content"]) for m in event["messages"])
                yield History(messages, int(event["turns"]))
            elif event["kind"] == "turn":
                yield _asked(event)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FormatError(f"{path} is not a log of a session.", why=str(error)) from error


def _asked(event: dict[str, Any]) -> Asked:
    limits = {**event["limits"], "stops": tuple(event["limits"]["stops"])}
    return Asked(
        event["prompt"], event["reply"], tuple(event["ids"]), event["ended"], event["kept"],
        Sampling(**event["sampling"]), Limits(**limits),
    )  # fmt: skip


def conversation_in(path: Path) -> History:
    """The conversation that a log ends with.

    Raises:
        FormatError: the log cannot be read, or no conversation is in it.
    """
    messages, turns = [], 0
    for event in read_log(path):
        if isinstance(event, History):
            messages, turns = list(event.messages), event.turns
        elif event.kept:
            messages += [Message("user", event.prompt), Message("assistant", event.reply)]
            turns += 1
    if not messages:
        raise FormatError(f"{path} holds no conversation.", fix="give the .jsonl of a session")
    return History(tuple(messages), turns)
