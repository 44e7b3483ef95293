import pytest
import torch

from fourge.chat.batch import reply_to_all
from fourge.chat.session import Limits
from fourge.core.errors import DataError, FormatError
from fourge.data.records import Message
from tests.chat.samples import session_of


def asked(*prompts: str) -> list[list[Message]]:
    return [[Message("user", prompt)] for prompt in prompts]


PROMPTS = [f"{'why ' * (n % 17)}number {n * n}?" for n in range(200)]


@pytest.mark.parametrize("name", ["qwen3", "gemma3", "mistral"])
def test_hundreds_of_prompts_at_once_say_what_each_says_alone(name: str) -> None:
    session = session_of(name, config={"sliding_window": 20} if name != "qwen3" else {})
    replies = reply_to_all(session.feed.model, session.template, asked(*PROMPTS), max_tokens=6)
    assert len(replies) == len(PROMPTS)
    for prompt, reply in list(zip(PROMPTS, replies, strict=True))[:: 1 if name == "qwen3" else 7]:
        session.begin()
        alone = session.ask(prompt, limits=Limits(max_tokens=6))
        assert (reply.text, reply.ids) == (alone.reply, alone.ids), prompt
        assert reply.stopped == (alone.ended == "stop")


def test_the_system_text_is_heard() -> None:
    session = session_of("llama3")
    conversation = [Message("system", "Be kind."), Message("user", "hello")]
    (reply,) = reply_to_all(session.feed.model, session.template, [conversation], max_tokens=8)
    session.begin([Message("system", "Be kind.")])
    assert reply.ids == session.ask("hello", limits=Limits(max_tokens=8)).ids


def test_a_conversation_that_is_too_long_is_refused_before_any_is_answered() -> None:
    session = session_of()
    with pytest.raises(DataError, match="Conversation 2 has"):
        reply_to_all(
            session.feed.model, session.template, asked("hello", "x" * 200), max_tokens=100
        )
    assert reply_to_all(session.feed.model, session.template, []) == []


def test_progress_is_told_batch_by_batch() -> None:
    session = session_of()
    told: list[tuple[int, int]] = []
    reply_to_all(
        session.feed.model, session.template, asked("a", "b", "c", "d"), max_tokens=2, batch=3,
        progress=lambda *each: told.append(each),
    )  # fmt: skip
    assert told == [(3, 4), (4, 4)]


def test_logits_that_are_not_finite_are_an_error_here_too() -> None:
    session = session_of()
    with torch.no_grad():
        session.feed.model.lm_head.weight[3] = float("nan")
    with pytest.raises(FormatError, match="not finite"):
        reply_to_all(session.feed.model, session.template, asked("hello"))
