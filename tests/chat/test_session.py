import time
from typing import Any

import pytest
import torch

from fourge.chat.sampling import Sampling
from fourge.chat.session import Limits, Session, context_of
from fourge.core.errors import ConfigError, DataError, FormatError
from fourge.data.records import Message
from tests.chat.samples import TOKENIZERS, bytes_of, says, session_of, whole


def require_whole(session: Session) -> None:
    """The cache holds what the template writes, and its next logits are those of one full pass."""
    ids = list(session.feed.ids)
    assert session.template.tokenizer.decode(ids) == session.template.renderer.text(
        session.messages
    )
    assert session.feed.cache.get_seq_length() == len(ids)
    torch.testing.assert_close(
        session.feed.feed([5])[-1], whole(session.feed.model, [*ids, 5])[-1], rtol=0, atol=1e-5
    )
    session.feed.rewind(len(ids))


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("piece", [1, 512])
def test_after_every_turn_the_cache_is_the_whole_conversation(name: str, piece: int) -> None:
    session = session_of(name, piece=piece)
    session.begin([Message("system", "Be kind.")])
    for turn in range(1, 5):
        answer = session.ask(f"question {turn}", Sampling(1.0, seed=turn), Limits(max_tokens=9))
        assert answer.turn == turn
        assert answer.context == len(session.feed.ids)
        require_whole(session)
    assert [m.role for m in session.messages] == ["system", *["user", "assistant"] * 4]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_each_turn_feeds_only_its_new_tokens_and_keeps_what_was_said(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_of(name)
    space = " " if name == "mistral" else ""  # which this template writes, so the model says it
    reply = bytes_of(session, f"{space}the \u4f60 thing")
    says(monkeypatch, reply, reply)
    first = session.ask("hello")
    assert (first.reply, list(first.ids), first.reused) == ("the \u4f60 thing", reply[:-1], 0)
    held = list(session.feed.ids)
    assert held[first.fed : first.fed + len(reply) - 1] == reply[:-1]
    require_whole(session)
    second = session.ask("again")
    assert (second.reused, second.dropped) == (len(held), 0)
    assert session.feed.ids[: len(held)] == held
    require_whole(session)


def test_thoughts_that_the_template_drops_are_fed_anew_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = session_of("qwen3")
    says(monkeypatch, bytes_of(session, "<think>hm</think>\n\nyes"), bytes_of(session, "no"))
    first = session.ask("hello")
    before = len(session.feed.ids)
    assert "<think>" in session.template.tokenizer.decode(session.feed.ids)
    answer = session.ask("why?")
    assert "<think>" not in session.template.tokenizer.decode(session.feed.ids)
    assert answer.reused == first.fed  # all that stood before the thought
    assert answer.dropped == before - first.fed
    require_whole(session)


def test_without_a_cache_everything_is_fed_and_the_same_is_said() -> None:
    one, other = session_of("llama3"), session_of("llama3", keep_cache=False)
    for turn in ("one", "two", "three"):
        mine = one.ask(turn, limits=Limits(max_tokens=8))
        theirs = other.ask(turn, limits=Limits(max_tokens=8))
        assert mine.ids == theirs.ids
        assert theirs.reused == 0
        assert theirs.fed == mine.fed + mine.reused


def test_a_turn_ends_at_the_first_limit_it_meets(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of()
    says(monkeypatch, *[bytes_of(session, "abcdef")] * 9)
    assert session.ask("q").ended == "stop"
    answer = session.ask("q", limits=Limits(max_tokens=3))
    assert (answer.ended, answer.reply) == ("max tokens", "abc")
    require_whole(session)


def test_a_stop_string_ends_the_reply_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of()
    says(monkeypatch, bytes_of(session, "one two three"))
    pieces = list(session.say("q", limits=Limits(stops=("wo t",))))
    assert session.last is not None
    assert (session.last.ended, session.last.reply) == ("stop string", "one t")
    assert "".join(piece.text for piece in pieces) == "one t"
    assert len(session.last.ids) == len("one two t")
    require_whole(session)


def test_what_might_have_begun_a_stop_string_is_shown_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = session_of()
    says(monkeypatch, bytes_of(session, "buzz"))
    pieces = list(session.say("q", limits=Limits(stops=("zzz",))))
    assert [piece.text for piece in pieces] == ["b", "u", "", "", "zz"]
    assert pieces[-1].token is None


def test_time_ends_the_turn_and_not_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of()
    clock = iter([float(n) for n in range(100)])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    answer = session.ask("q", limits=Limits(seconds=5.5))
    assert answer.ended == "time"
    assert answer.kept
    assert 0 < len(answer.ids) < 6
    assert session.ask("q", limits=Limits(max_tokens=2)).turn == 2
    require_whole(session)


def test_a_turn_halted_before_its_first_token_is_withdrawn() -> None:
    session = session_of(piece=4)
    session.ask("hello", limits=Limits(max_tokens=4))
    messages = list(session.messages)
    answer = session.ask("a longer question", limits=Limits(halt=lambda: True))
    assert (answer.ended, answer.kept, answer.reply, answer.ids) == ("interrupted", False, "", ())
    assert session.messages == messages
    assert session.turns == 1
    again = session.ask("hello", limits=Limits(max_tokens=4))
    assert again.turn == 2
    require_whole(session)


def test_an_interrupted_reply_is_kept_as_far_as_it_went(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of()
    says(monkeypatch, bytes_of(session, "abcdef"), bytes_of(session, "xyz"))
    heard: list[int] = []
    limits = Limits(halt=lambda: len(heard) >= 3)
    for piece in session.say("q", limits=limits):
        heard.append(piece.token or 0)
    assert session.last is not None
    assert (session.last.ended, session.last.reply) == ("interrupted", "abc")
    require_whole(session)


@pytest.mark.parametrize("error", [GeneratorExit, KeyboardInterrupt, SystemExit])
def test_whoever_leaves_in_the_middle_leaves_a_session_that_goes_on(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_of()
    says(monkeypatch, bytes_of(session, "abcdef", stop=False), bytes_of(session, "xyz"))
    talk: Any = session.say("q")
    assert [next(talk).text for _ in range(2)] == ["a", "b"]
    with pytest.raises(error):
        talk.throw(error)
    assert session.messages[-1] == Message("assistant", "ab")
    assert session.last is not None
    assert session.last.ended == "interrupted"
    monkeypatch.undo()
    session.ask("more", limits=Limits(max_tokens=3))
    require_whole(session)


@pytest.mark.parametrize("text", ["", "  ", "hi <|im_end|>", "x" * 300, "\udc80"])
def test_a_question_that_is_refused_changes_nothing(text: str) -> None:
    session = session_of()
    session.ask("hello", limits=Limits(max_tokens=4))
    messages, held = list(session.messages), list(session.feed.ids)
    with pytest.raises(DataError):
        session.ask(text)
    assert (session.messages, session.feed.ids, session.turns) == (messages, held, 1)


def test_a_model_that_fails_leaves_the_conversation_as_it_was() -> None:
    session = session_of()
    session.ask("hello", limits=Limits(max_tokens=4))
    messages = list(session.messages)
    weight = session.feed.model.model.layers[0].mlp.up_proj.weight
    sound = weight.detach().clone()
    with torch.no_grad():
        weight.fill_(float("nan"))
    with pytest.raises(FormatError, match="not finite"):
        session.ask("and now?")
    assert session.messages == messages
    with torch.no_grad():
        weight.copy_(sound)
    session.ask("and now?", limits=Limits(max_tokens=4))
    require_whole(session)


def test_a_reply_of_nothing_is_a_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of()
    says(monkeypatch, bytes_of(session, ""))
    answer = session.ask("q")
    assert (answer.reply, answer.kept, answer.ended) == ("", True, "stop")
    require_whole(session)


def test_a_reply_ends_where_the_context_does() -> None:
    session = session_of(config={"max_position_embeddings": 60})
    answer = session.ask("hello", Sampling(1.0))
    assert answer.ended == "context"
    assert answer.fed + len(answer.ids) == 60
    with pytest.raises(DataError, match="room for 60"):
        session.ask("more")


def test_a_window_forgets_the_oldest_turns_and_says_so() -> None:
    session = session_of(window=120)
    session.begin([Message("system", "S")])
    forgotten = 0
    for turn in range(8):
        answer = session.ask(f"question {turn}", limits=Limits(max_tokens=10))
        forgotten += answer.forgotten
        assert len(session.feed.ids) <= 130
        assert session.messages[0] == Message("system", "S")
        require_whole(session)
    assert forgotten > 0
    assert forgotten % 2 == 0
    assert len(session.messages) == 1 + 16 - forgotten


def test_beginning_anew_is_as_if_nothing_had_been_said() -> None:
    session, fresh = session_of(), session_of()
    session.ask("hello", limits=Limits(max_tokens=4))
    session.begin([Message("system", "S")])
    fresh.begin([Message("system", "S")])
    assert session.last is None
    limits = Limits(max_tokens=4)
    assert session.ask("x", limits=limits).ids == fresh.ask("x", limits=limits).ids
    assert session.last is not None
    assert (session.last.dropped, session.last.reused) == (0, 0)


def test_messages_that_the_template_refuses_are_refused_and_nothing_changes() -> None:
    session = session_of("gemma3")
    session.ask("hello", limits=Limits(max_tokens=4))
    messages = list(session.messages)
    with pytest.raises(DataError, match="refuses"):
        session.begin([Message("assistant", "me first"), Message("assistant", "me too")])
    assert session.messages == messages


@pytest.mark.parametrize(
    "limits", [{"max_tokens": 0}, {"seconds": 0.0}, {"seconds": -1.0}, {"stops": ("",)}]
)
def test_limits_that_cannot_be_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Limits(**limits)


def test_a_window_larger_than_the_model_is_refused() -> None:
    config: Any = type("Config", (), {"max_position_embeddings": 256})
    assert context_of(config, None) == 256
    assert context_of(config, 100) == 100
    for window in (0, 15, 257):
        with pytest.raises(ConfigError, match="window"):
            context_of(config, window)
