"""Questions as they are typed or piped, and the commands among them.

A line is a question. A backslash at its end, or three quotes around several lines, make a longer
one. A line that begins with a slash is a command; two slashes say a slash.
"""

import readline
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from fourge.cli.chat_options import state_folder
from fourge.cli.chat_talk import Talk
from fourge.core.errors import ConfigError, DataError, FourgeError
from fourge.data.records import Message

HELP = """\
a line is a question; end it with \\ to go on in the next, or put \"\"\" around many
Ctrl-C stops the answer and keeps the session, Ctrl-D leaves
/reset          begin a new conversation (the system text stays)
/system TEXT    begin a new conversation with this system text
/stats          what the session holds, and what the last turn cost
/save FILE      save the session, its cache included
/load FILE      go on with a saved session, or with the .jsonl of a log
/help  /quit    // says a slash"""
_QUOTES = '"""'
_HISTORY = 1000  # lines

Read = Callable[[bool], str]  # one line; whether it continues another


def typed(tell: Callable[[str], None]) -> Iterator[str]:
    """Questions from a terminal, with a history that outlives the session."""
    history = state_folder() / "history"
    with suppress(OSError):
        readline.read_history_file(history)
    readline.set_history_length(_HISTORY)
    tell("/help says what can be typed")

    def read(continued: bool) -> str:
        return input(". " if continued else "> ")

    try:
        while True:
            try:
                yield question(read)
            except KeyboardInterrupt:
                tell("Ctrl-D leaves")
    except (EOFError, OSError):  # Ctrl-D, or the terminal is gone
        pass
    finally:
        with suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(history)


def piped(refuse: Callable[[FourgeError], None]) -> Iterator[str]:
    """Questions from a pipe or a file; a line that is not UTF-8 is refused, and the next read."""
    lines = enumerate(sys.stdin.buffer, 1)

    def read(continued: bool) -> str:
        for number, line in lines:
            try:
                return str(line.decode().rstrip("\r\n"))
            except UnicodeDecodeError as error:
                refuse(
                    DataError(
                        f"Line {number} of the input is not UTF-8 text.",
                        why=f"it holds the byte 0x{line[error.start]:02x}",
                        fix="convert the input to UTF-8",
                    )
                )
        raise EOFError

    with suppress(EOFError):
        while True:
            yield question(read)


def question(read: Read) -> str:
    """One question, of one line or more.

    Raises:
        EOFError: there is none.
    """
    line = read(False)
    if line.startswith(_QUOTES):
        return _quoted(line.removeprefix(_QUOTES), read)
    lines = [line]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1].removesuffix("\\")
        try:
            lines.append(read(True))
        except EOFError:
            break
    return "\n".join(lines)


def _quoted(line: str, read: Read) -> str:
    lines = [line]
    while not lines[-1].endswith(_QUOTES):
        try:
            lines.append(read(True))
        except EOFError:
            break
    return "\n".join(lines).removesuffix(_QUOTES).strip("\n")


def heed(talk: Talk, line: str) -> bool:
    """Ask a question or do what a command says; False if it is to leave.

    What is wrong is said, and the session goes on.
    """
    try:
        if line.startswith("/") and not line.startswith("//"):
            name, _, rest = line[1:].partition(" ")
            return _command(talk, name, rest.strip())
        if line.strip():
            said = line[1:] if line.startswith("//") else line
            talk.ask(said, leave_on_interrupt=not sys.stdin.isatty())
    except FourgeError as error:
        talk.refuse(error)
    return True


def _command(talk: Talk, name: str, rest: str) -> bool:
    if name == "reset":
        talk.restart([m for m in talk.session.messages[:1] if m.role == "system"])
    elif name == "system":
        talk.restart([Message("system", rest)] if rest else [])
    elif name == "stats":
        talk.tell_stats()
    elif name in ("save", "load"):
        if not rest:
            raise ConfigError(f"/{name} needs the name of a file.")
        (talk.save if name == "save" else talk.load)(Path(rest).expanduser())
    elif name == "help":
        for each in HELP.splitlines():
            talk.tell(each)
    elif name != "quit":
        raise ConfigError(f"There is no command /{name}.", fix="/help lists them")
    return name != "quit"
