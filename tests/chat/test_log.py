import json
from pathlib import Path

import pytest

from fourge.chat.log import Asked, ChatLog, History, conversation_in, read_log
from fourge.chat.sampling import Sampling
from fourge.chat.session import Limits
from fourge.core.errors import DataError, FormatError, OutputError
from fourge.data.records import Message
from tests.chat.samples import session_of

SAMPLING, LIMITS = Sampling(temperature=0.7, seed=3), Limits(max_tokens=5, stops=("zz",))


def logged(folder: Path) -> tuple[ChatLog, list[Message]]:
    session, log = session_of(), ChatLog(folder / "chat", model="tiny")
    session.begin([Message("system", "Be kind.")])
    log.history(session.messages, 0)
    for prompt in ("hello", "and then?"):
        log.turn(session.ask(prompt, SAMPLING, LIMITS), SAMPLING, LIMITS)
    withdrawn = session.ask("late", limits=Limits(halt=lambda: True))
    log.turn(withdrawn, SAMPLING, LIMITS)
    return log, session.messages


def test_what_was_asked_can_be_read_back_with_its_settings(tmp_path: Path) -> None:
    log, messages = logged(tmp_path)
    begun, *turns = read_log(log.path)
    assert begun == History((Message("system", "Be kind."),), 0)
    asked = [turn for turn in turns if isinstance(turn, Asked)]
    assert [turn.prompt for turn in asked] == ["hello", "and then?", "late"]
    assert [turn.kept for turn in asked] == [True, True, False]
    assert {(turn.sampling, turn.limits) for turn in asked} == {(SAMPLING, LIMITS)}
    assert asked[0].reply == messages[2].content
    assert len(asked[0].ids) == 5
    first = json.loads(log.path.read_text().splitlines()[0])
    assert (first["kind"], first["model"]) == ("session", "tiny")


def test_a_log_holds_the_conversation_it_ends_with(tmp_path: Path) -> None:
    log, messages = logged(tmp_path)
    assert conversation_in(log.path) == History(tuple(messages), 2)
    log.history([Message("user", "u"), Message("assistant", "a")], 7)
    assert conversation_in(log.path).turns == 7
    assert len(conversation_in(log.path).messages) == 2


def test_the_text_is_what_was_said(tmp_path: Path) -> None:
    log, messages = logged(tmp_path)
    text = (tmp_path / "chat.txt").read_text()
    assert text.startswith("==== 2")
    assert "[system] Be kind.\n" in text
    assert f"[user] hello\n[assistant] {messages[2].content} (max tokens)\n" in text
    assert log.path == tmp_path / "chat.jsonl"


def test_a_log_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "chat.txt").write_text("dear diary")
    with pytest.raises(OutputError, match="exists"):
        ChatLog(tmp_path / "chat")
    assert not (tmp_path / "chat.jsonl").exists()


def test_a_torn_last_line_costs_that_turn_alone(tmp_path: Path) -> None:
    log, _ = logged(tmp_path)
    log.path.write_bytes(log.path.read_bytes()[:-20])
    assert len(list(read_log(log.path))) == 3


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    with pytest.raises(FormatError, match="does not exist"):
        list(read_log(path))
    path.write_text('{"v": 1, "kind": "turn", "prompt": "hi"}\n')
    with pytest.raises(FormatError, match="not a log"):
        list(read_log(path))
    path.write_text("nothing\n")
    with pytest.raises(FormatError, match="no conversation"):
        conversation_in(path)
    wizard = {"v": 1, "kind": "history", "turns": 0, "messages": [{"role": "x", "content": "y"}]}
    path.write_text(json.dumps(wizard) + "\n")
    with pytest.raises(DataError, match="role"):
        list(read_log(path))
