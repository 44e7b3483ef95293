import pytest
import torch

from fourge.chat import batch
from fourge.chat.batch import replies_as_they_come, reply_to_all, shared_beginning
from fourge.chat.rows import Rows
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


def test_the_same_prompt_twice_has_the_same_reply_twice() -> None:
    session = session_of()
    given = (session.feed.model, session.template)
    (alone,) = reply_to_all(*given, asked("hello"), max_tokens=6)
    assert reply_to_all(*given, asked("hello", "hello"), max_tokens=6) == [alone, alone]


@pytest.mark.parametrize(
    ("prompts", "shared"),
    [
        ([], []),
        ([[1, 2, 3]], []),
        ([[1, 2], [1, 2, 3]], [1]),
        ([[1, 2, 3, 4], [1, 2, 5], [1, 2, 3, 6]], [1, 2]),
        ([[1, 2], [3, 2]], []),
        ([[1], [1, 2]], []),
        ([[1, 2, 3], [1, 2, 3]], [1, 2]),
        ([[9, 9], [1, 2, 3, 4], [7], [1, 2, 3, 5], [1, 2, 3]], [1, 2]),
        ([[1, 1, 1, 1, 1, 1, 1, 2], [1, 1, 1, 1, 1, 1, 1, 3], [1, 4], [1, 5]], [1] * 7),
        ([[1, 1, 2], [1, 1, 3], [1, 4], [1, 5], [1, 6]], [1]),
    ],
)
def test_what_is_read_once_saves_most_and_has_a_token_more_behind_it(
    prompts: list[list[int]], shared: list[int]
) -> None:
    assert list(shared_beginning(prompts)) == shared


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


def test_progress_is_told_reply_by_reply() -> None:
    session = session_of()
    told: list[tuple[int, int]] = []
    reply_to_all(
        session.feed.model, session.template, asked("a", "b", "c", "d"), max_tokens=2, batch=3,
        progress=lambda *each: told.append(each),
    )  # fmt: skip
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_logits_that_are_not_finite_are_an_error_here_too() -> None:
    session = session_of()
    with torch.no_grad():
        session.feed.model.lm_head.weight[3] = float("nan")
    with pytest.raises(FormatError, match="not finite"):
        reply_to_all(session.feed.model, session.template, asked("hello"))


def test_a_model_that_cannot_share_a_cache_says_the_same_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = session_of()
    given = (session.feed.model, session.template, asked(*PROMPTS[:9]))
    together = reply_to_all(*given, max_tokens=6)
    monkeypatch.setattr(batch, "can_hold", lambda model: False)
    monkeypatch.setattr(batch, "Rows", lambda *args: pytest.fail("side by side"))
    assert reply_to_all(*given, max_tokens=6) == together


@pytest.mark.parametrize("at_once", [1, 3, 16])
def test_replies_come_as_they_are_complete_each_within_its_own_limit(at_once: int) -> None:
    session = session_of()
    model, template = session.feed.model, session.template
    limits = [1 + 5 * (n % 4) for n in range(12)]
    found = dict(replies_as_they_come(model, template, asked(*PROMPTS[:12]), limits, batch=at_once))
    assert sorted(found) == list(range(12))
    for number, limit in enumerate(limits):
        (alone,) = reply_to_all(model, template, asked(PROMPTS[number]), max_tokens=limit)
        assert found[number] == alone
        assert len(alone.ids) == limit or alone.stopped


def test_a_step_never_has_more_rows_than_asked_and_has_them_while_some_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session, counts = session_of(), list[int]()
    step = Rows.step

    def counted(rows: Rows) -> torch.Tensor:
        counts.append(len(rows.ids))
        return step(rows)

    monkeypatch.setattr(Rows, "step", counted)
    limits = [2 + n % 9 for n in range(30)]
    replies = dict(
        replies_as_they_come(
            session.feed.model, session.template, asked(*PROMPTS[:30]), limits, batch=8
        )
    )
    assert max(counts) == 8
    said = sum(len(reply.ids) + reply.stopped for reply in replies.values())
    assert said <= sum(counts) <= 1.2 * said
