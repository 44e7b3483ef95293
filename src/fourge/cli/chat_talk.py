"""A session on a terminal or a pipe: replies as they come, notes on stderr, a log of it all."""

import errno
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from fourge import __version__
from fourge.chat.expect import Expect, failures
from fourge.chat.load import Loaded
from fourge.chat.log import Asked, ChatLog, conversation_in
from fourge.chat.sampling import Sampling
from fourge.chat.session import Answer, Limits, Session
from fourge.chat.stored import load_session, save_session
from fourge.cli.chat_options import Options
from fourge.cli.screen import echo_json
from fourge.core.errors import DataError, FourgeError
from fourge.core.units import size
from fourge.data.records import Message


class Talk:
    """A session, and whoever watches it."""

    def __init__(
        self, session: Session, options: Options, sampling: Sampling, limits: Limits, model: str,
        loaded: Loaded,
    ) -> None:  # fmt: skip
        self.session, self.options = session, options
        self.sampling, self.limits = sampling, limits
        self._same = self._refused = 0
        self.log: ChatLog | None = None
        kind = str(loaded.dtype).split(".")[-1]
        self.tell(f"{model}: {loaded.path}, {kind} on {session.feed.model.device}")
        if (stem := options.log_stem()) is not None:
            self.log = ChatLog(
                stem, model=model, path=loaded.path, dtype=kind, cache=options.cache,
                window=options.window, version=__version__,
            )  # fmt: skip

    def begin(self, system: str | None) -> None:
        """Begin as the options say: with a saved conversation, a system text, or nothing."""
        if self.options.load and system is None:
            self.load(self.options.load)
        elif system or self.session.messages:
            self.restart([Message("system", system)] if system else [])

    def restart(self, messages: Sequence[Message], turns: int | None = None) -> None:
        """Put another conversation in the place of this one; turns are counted on, or anew."""
        self.session.begin(messages)
        self.session.turns = self.session.turns if turns is None else turns
        self._log_history()

    def load(self, path: Path) -> None:
        if path.suffix == ".jsonl":
            found = conversation_in(path)
            self.restart(found.messages, found.turns)
        else:
            load_session(self.session, path)
            self._log_history()
        self.tell(f"{path}: {len(self.session.messages)} messages")

    def save(self, path: Path) -> None:
        save_session(self.session, path, overwrite=self.options.overwrite)
        self.tell(f"saved in {path}")

    def _log_history(self) -> None:
        if self.log:
            self.log.history(self.session.messages, self.session.turns)

    def ask(
        self,
        prompt: str,
        *,
        echo: bool = False,
        expect: Expect | None = None,
        max_tokens: int | None = None,
        seconds: float | None = None,
        leave_on_interrupt: bool = True,
    ) -> list[str]:
        """One turn; in which ways the reply is not what was expected."""
        limits = replace(
            self.limits,
            max_tokens=max_tokens or self.limits.max_tokens,
            seconds=seconds or self.limits.seconds,
        )
        answer = self._turn(prompt, self.sampling, limits, echo=echo)
        found = failures(answer, expect or Expect())
        self._show(answer, {"failures": found} if expect else {})
        if answer.ended == "interrupted" and leave_on_interrupt:
            raise KeyboardInterrupt
        return found

    def ask_again(self, asked: Asked) -> None:
        """A turn of a log, with the settings it had."""
        answer = self._turn(asked.prompt, asked.sampling, asked.limits, echo=True)
        same = answer.ids == asked.ids
        self._same += same
        self._show(answer, {"same": same})
        if not same:
            self.tell(f"the log has another reply: {asked.reply}")
        if answer.ended == "interrupted":
            raise KeyboardInterrupt

    def told_replay(self, turns: int) -> None:
        self.tell(f"{self._same} of {turns} replies are those of the log, token for token")

    def _turn(self, prompt: str, sampling: Sampling, limits: Limits, *, echo: bool) -> Answer:
        if echo and not self.options.as_json:
            click.echo(f"> {prompt}")
        self.session.last = None
        with _halting() as halted:
            heard = replace(limits, halt=lambda: bool(halted))
            try:
                with closing(self.session.say(prompt, sampling, heard)) as pieces:
                    for piece in pieces:
                        if not self.options.as_json:
                            _stream(piece.text)
            finally:  # a turn that a signal ended is in the log too
                if self.session.last and self.log:
                    self.log.turn(self.session.last, sampling, limits)
        assert self.session.last is not None, "a turn that ended has an answer"
        return self.session.last

    def _show(self, answer: Answer, more: dict[str, Any]) -> None:
        if self.options.as_json:
            echo_json({**asdict(answer), **more})
            return
        click.echo()
        if self.options.show_ids:
            click.echo(f"ids: {' '.join(map(str, answer.ids))}")
        for line in _notes(answer, self.session):
            self.tell(line)
        if self.options.stats:
            self.tell_stats()

    def tell_stats(self) -> None:
        for line in stats(self.session):
            self.tell(line)

    def tell(self, line: str) -> None:
        """A line beside the conversation; nobody may be there to read it."""
        if not self.options.as_json:
            with suppress(OSError):
                click.echo(f"[{line}]", err=True)

    def refuse(self, error: FourgeError) -> None:
        """Say what is wrong with one question; the session goes on."""
        self._refused += 1
        click.echo(f"fourge: {error}", err=True)

    def require_no_refusal(self, *, typed: bool) -> None:
        """Raise at the end of a pipe some of whose questions were not asked."""
        if self._refused and not typed:
            raise DataError(f"{self._refused} of the questions could not be asked.")

    def leave(self) -> None:
        """Save what is to be saved, whatever ended the session."""
        if self.options.save and self.session.messages:
            self.save(self.options.save)
        if self.log and sys.stdin.isatty():
            self.tell(f"the log is {self.log.path}; --load takes it up again")


def _stream(text: str) -> None:
    """Text on stdout at once, without what could steer a terminal."""
    try:
        click.echo("".join(c for c in text if c >= " " or c in "\n\t"), nl=False)
        sys.stdout.flush()
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise BrokenPipeError from error  # a terminal that is gone is a reader that has left


@contextmanager
def _halting() -> Iterator[list[int]]:
    """Ctrl-C fills the list and so ends the turn; a second one is as if we had not been here."""
    halted: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def ask(number: int, frame: object) -> None:
        halted.append(number)
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, ask)
    try:
        yield halted
    finally:
        signal.signal(signal.SIGINT, before)


def _notes(answer: Answer, session: Session) -> list[str]:
    """What a reader must know about a turn beside its reply."""
    notes = []
    if answer.forgotten:
        notes.append(
            f"the window of {session.window} tokens is full: the oldest {answer.forgotten} "
            "messages are forgotten"
        )
    if not answer.kept:
        notes.append(f"no answer ({answer.ended}); the question is withdrawn")
    elif answer.ended != "stop":
        notes.append(f"ended by {answer.ended}")
    return notes


def stats(session: Session) -> Sequence[str]:
    """What the session holds, and what its last turn cost."""
    lines = [
        f"{len(session.messages)} messages, {len(session.feed.ids)} of {session.context} tokens, "
        f"cache {size(session.feed.nbytes)} ({session.feed.kind})"
    ]
    if answer := session.last:
        rate = len(answer.ids) / answer.decode_s if answer.decode_s else 0.0
        lines.append(
            f"turn {answer.turn}: reused {answer.reused}, fed {answer.fed} in "
            f"{answer.prefill_s:.2f} s, said {len(answer.ids)} ({rate:.1f}/s)"
        )
        if answer.dropped:
            lines.append(
                f"history was written anew: {answer.dropped} cached tokens were dropped, and the "
                "text from there was fed again"
            )
    return lines
