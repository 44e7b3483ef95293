"""The typed side of ``fourge chat``: lines into questions, and a real terminal around it."""

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fourge.cli.chat_prompt import question
from tests.chat.samples import model_for
from tests.conftest import byte_tokenizer


def reader(lines: list[str]) -> Any:
    rest = iter(lines)

    def read(continued: bool) -> str:
        for line in rest:
            return line
        raise EOFError

    return read


@pytest.mark.parametrize(
    ("lines", "asked"),
    [
        (["hi"], "hi"),
        (["a\\", "b\\", "c"], "a\nb\nc"),
        (["a\\"], "a"),
        (['"""a"""'], "a"),
        (['"""', "a", "", "b", '"""'], "a\n\nb"),
        (['"""a', 'b"""'], "a\nb"),
        (['"""a'], "a"),
    ],
)
def test_lines_make_up_a_question(lines: list[str], asked: str) -> None:
    assert question(reader(lines)) == asked


def test_where_there_is_no_line_there_is_no_question() -> None:
    with pytest.raises(EOFError):
        question(reader([]))


class Terminal:
    """A process on a terminal of its own, and the hand at it."""

    def __init__(self, command: list[str], **variables: str) -> None:
        self.master, slave = pty.openpty()
        environment = {**os.environ, **variables, "TERM": "xterm", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(slave)
        self.seen = ""

    def wait_for(self, text: str, seconds: float = 90) -> None:
        """Read until this has been shown since the last wait."""
        assert self._shown(text, seconds), f"{text!r} did not come: {self.seen[-2000:]!r}"
        self.seen = self.seen[self.seen.index(text) + len(text) :]

    def _shown(self, text: str, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while text not in self.seen and time.monotonic() < deadline:
            if select.select([self.master], [], [], 0.2)[0]:
                self.seen += os.read(self.master, 65536).decode(errors="replace")
        return text in self.seen

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def press(self, key: str, text: str) -> None:
        """Press a key until this is shown: one that comes while a line is begun may go unheard."""
        for _ in range(30):
            self.type(key)
            if self._shown(text, 3):
                break
        self.wait_for(text, 1)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def hang_up(self) -> int:
        os.close(self.master)
        return self.process.wait(timeout=60)


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """A model that talks for as long as it is let."""
    tokenizer = byte_tokenizer()
    model = model_for(tokenizer, max_position_embeddings=1 << 20, eos_token_id=None)
    with torch.no_grad():
        model.lm_head.weight[tokenizer.eos_token_id] = 0
        model.lm_head.weight[:256] *= 4
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def terminal(endless: Path, tmp_path: Path) -> Iterator[Terminal]:
    command = [sys.executable, "-m", "fourge", "chat", str(endless), "--log", str(tmp_path / "log"),
               "--max-tokens", "500000", "--save", str(tmp_path / "s.safetensors")]  # fmt: skip
    terminal = Terminal(command, XDG_STATE_HOME=str(tmp_path / "state"))
    yield terminal
    terminal.process.kill()
    terminal.process.wait()


@pytest.mark.slow
def test_on_a_terminal_nothing_ends_the_session_but_leaving_it_and_a_hangup_loses_nothing(
    terminal: Terminal, tmp_path: Path
) -> None:
    terminal.wait_for("> ")
    terminal.type("first\n")
    time.sleep(1)
    terminal.resize(10, 33)
    terminal.type("\x03")  # Ctrl-C
    terminal.wait_for("[ended by interrupted]")
    terminal.wait_for("> ")
    terminal.type("half a line")
    terminal.wait_for("half a line")  # a Ctrl-C that overtakes its line leaves readline without one
    terminal.press("\x03", "[Ctrl-D leaves]")
    terminal.type("/stats\n")
    terminal.wait_for("[2 messages, ")
    terminal.wait_for("> ")
    terminal.type("second\n")
    time.sleep(1)
    assert terminal.hang_up() == 129
    events = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    turns = [event for event in events if event["kind"] == "turn"]
    assert [turn["prompt"] for turn in turns] == ["first", "second"]
    assert [turn["ended"] for turn in turns] == ["interrupted", "interrupted"]
    assert all(turn["kept"] and turn["ids"] for turn in turns)
    assert (tmp_path / "s.safetensors").exists()
    assert "first" in (tmp_path / "state" / "fourge" / "history").read_text()
