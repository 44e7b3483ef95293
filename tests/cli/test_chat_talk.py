import errno
import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from fourge.chat.load import Loaded
from fourge.chat.sampling import Sampling
from fourge.chat.session import Limits, Session
from fourge.cli.chat import chat
from fourge.cli.chat_options import Options
from fourge.cli.chat_talk import Talk, stats
from tests.chat.samples import bytes_of, says, session_of


def talk_of(session: Session, folder: Path, *args: str) -> Talk:
    given = chat.make_context("chat", ["tiny", "--log", str(folder / "log"), *args]).params
    given.pop("model")
    loaded = Loaded(session.feed.model, "dense", torch.float32)
    return Talk(session, Options(**given), Sampling(), Limits(max_tokens=9), "tiny", loaded)


def interrupting(monkeypatch: pytest.MonkeyPatch, session: Session, after: int) -> None:
    """Ctrl-C is pressed while the model is computing the token after so many."""
    plain, done = session.feed.feed, [0]

    def feed(ids: Sequence[int], **kwargs: Any) -> Any:
        done[0] += 1
        if done[0] == after + 1:
            signal.raise_signal(signal.SIGINT)
        return plain(ids, **kwargs)

    monkeypatch.setattr(session.feed, "feed", feed)


def test_ctrl_c_ends_the_answer_keeps_it_and_logs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    session = session_of()
    talk = talk_of(session, tmp_path)
    says(monkeypatch, bytes_of(session, "abcdef"), bytes_of(session, "xyz"))
    interrupting(monkeypatch, session, after=2)
    before = signal.getsignal(signal.SIGINT)
    talk.ask("q", leave_on_interrupt=False)
    assert signal.getsignal(signal.SIGINT) == before
    assert session.messages[-1].content == "abc"
    assert "[ended by interrupted]" in capsys.readouterr().err
    event = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[-1])
    assert (event["reply"], event["ended"]) == ("abc", "interrupted")
    monkeypatch.undo()
    talk.ask("more")
    assert session.last is not None
    assert session.last.reused > 0


def test_elsewhere_than_on_a_terminal_ctrl_c_leaves_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_of()
    interrupting(monkeypatch, session, after=1)
    with pytest.raises(KeyboardInterrupt):
        talk_of(session, tmp_path).ask("q")
    assert (tmp_path / "log.jsonl").read_text().count('"turn"') >= 1


def test_a_second_ctrl_c_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of()

    def twice(*args: Any, **kwargs: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(session.feed, "feed", twice)
    with pytest.raises(KeyboardInterrupt):
        talk_of(session, tmp_path).ask("q", leave_on_interrupt=False)


@pytest.mark.parametrize("error", [OSError(errno.EIO, "gone"), BrokenPipeError()])
def test_a_reply_that_nobody_can_be_shown_any_more_is_in_the_log(
    error: OSError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_of()
    talk = talk_of(session, tmp_path)
    says(monkeypatch, bytes_of(session, "abcdef"))

    def gone(text: str, **kwargs: Any) -> None:
        if "b" in text:
            raise error

    monkeypatch.setattr("click.echo", gone)
    with pytest.raises(BrokenPipeError):
        talk.ask("q")
    event = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[-1])
    assert (event["reply"], event["ended"]) == ("ab", "interrupted")


def test_a_reply_cannot_steer_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    session = session_of()
    says(monkeypatch, bytes_of(session, "a\x1b[2J\tb\nc"))
    talk_of(session, tmp_path).ask("q")
    assert capsys.readouterr().out == "a[2J\tb\nc\n"
    assert session.messages[-1].content == "a\x1b[2J\tb\nc"


def test_the_statistics_say_what_was_fed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of("qwen3")
    assert stats(session) == ["0 messages, 0 of 256 tokens, cache 0 B (plain)"]
    says(monkeypatch, bytes_of(session, "<think>hm</think>\n\nyes"), bytes_of(session, "no"))
    session.ask("hello")
    assert not any("written anew" in line for line in stats(session))
    session.ask("why?")
    assert session.last is not None
    expected = f"history was written anew: {session.last.dropped} cached tokens were dropped"
    assert any(line.startswith(expected) for line in stats(session))
    assert all(len(line) <= 130 for line in stats(session))
