from collections.abc import Sequence
from typing import Any

import pytest
import torch

from fourge.chat.conversation import Template
from fourge.chat.feed import Feed
from fourge.chat.session import Limits, Session
from fourge.chat.stream import HALF
from fourge.evaluate import needle
from fourge.evaluate.haystack import Haystack, Hidden
from fourge.evaluate.needle import ANSWER, Asked, Held, Recall, depths_of, fill, growth, halves
from fourge.memory.kv import kv_nbytes
from tests.chat.samples import model_for
from tests.conftest import byte_tokenizer

TOKENIZER = byte_tokenizer()
TEMPLATE = Template(TOKENIZER)
TEXT = "\n".join(f"line {n}" for n in range(200))


@pytest.fixture(scope="module")
def model() -> Any:
    return model_for(TOKENIZER, max_position_embeddings=2048)


def hidden(lengths: list[int], depths: list[float]) -> list[Hidden]:
    return Haystack(TEMPLATE, TEXT).hide(lengths, depths, answer=ANSWER, seed=0)


def ignore(what: str, done: int, total: int) -> None:
    pass


def asked(length: int, depth: float, *, found: bool) -> Asked:
    return Asked(length, length, depth, "amber-1234", "It is Amber-1234." if found else "amber-123")


def test_recall_is_a_share_of_all_or_of_one_length_or_depth() -> None:
    cases = [(100, 0.0, True), (100, 1.0, False), (200, 0.0, True), (200, 1.0, True)]
    found = Recall(tuple(asked(n, d, found=f) for n, d, f in cases), ())
    assert found.share() == 0.75
    assert (found.share(length=100), found.share(length=200)) == (0.5, 1.0)
    assert (found.share(depth=0.0), found.share(depth=1.0)) == (1.0, 0.5)


def test_depths_go_from_the_beginning_to_the_end() -> None:
    assert depths_of(5) == [0, 0.25, 0.5, 0.75, 1]
    assert depths_of(2) == [0, 1]
    assert depths_of(1) == [0.5]


def test_every_prompt_is_asked_and_told_of(model: Any) -> None:
    told: list[tuple[str, int, int]] = []
    prompts = hidden([300, 400], [0.0, 1.0])
    found = needle.recall(model, TEMPLATE, prompts, chunk=64,
                          progress=lambda *report: told.append(report))  # fmt: skip
    assert [(each.length, each.depth, each.code, each.tokens) for each in found.asked] == [
        (each.length, each.depth, each.code, len(each.prompt)) for each in prompts
    ]
    assert told == [("asking", number, 4) for number in (1, 2, 3, 4)]
    assert found.held[-1].tokens == len(prompts[0].prompt)


def test_a_reply_is_that_of_a_chat_with_an_empty_cache(model: Any) -> None:
    prompts = hidden([300], [1.0, 0.5, 0.0])
    found = needle.recall(model, TEMPLATE, prompts, chunk=50, progress=ignore)
    for each, prompt in zip(found.asked, prompts, strict=True):
        text = TOKENIZER.decode(prompt.prompt).removeprefix("<|im_start|>user\n")
        session = Session(model, TEMPLATE)
        answer = session.ask(text.split("<|im_end|>")[0], limits=Limits(max_tokens=ANSWER))
        assert answer.fed == len(prompt.prompt)
        assert each.reply.rstrip(HALF) == answer.reply.rstrip(HALF)


def test_a_reply_ends_at_the_stop_token(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = TOKENIZER.eos_token_id
    tokens = iter([*TOKENIZER("amber", add_special_tokens=False)["input_ids"], stop])

    def feed(self: Feed, ids: Sequence[int], **kwargs: Any) -> torch.Tensor:
        return torch.nn.functional.one_hot(torch.tensor([next(tokens)]), 400).float()

    monkeypatch.setattr(Feed, "hold", lambda self, ids: feed(self, ids)[-1])
    monkeypatch.setattr(Feed, "feed", feed)
    assert needle._reply(Feed(model), TEMPLATE, [1, 2]) == "amber"


def test_what_is_common_to_two_prompts_is_fed_once(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed: list[int] = []
    whole = Feed.feed

    def feed(self: Feed, ids: Sequence[int], **kwargs: Any) -> torch.Tensor:
        fed.append(len(ids))
        return whole(self, ids, **kwargs)

    monkeypatch.setattr(Feed, "feed", feed)
    prompts = hidden([900], [0.0, 0.5, 1.0])
    needle.recall(model, TEMPLATE, prompts, chunk=128, progress=ignore)
    assert max(fed) == 128
    assert sum(fed) < 0.93 * sum(len(each.prompt) for each in prompts) + 3 * ANSWER


def test_the_cache_grows_by_what_the_plan_says(model: Any) -> None:
    held = fill(Feed(model, piece=100), [1] * 1000)
    assert [each.tokens for each in held] == list(range(100, 1001, 100))
    predicted = kv_nbytes(model.config, 1, dtype=torch.float32)
    assert growth(held, "cache") == predicted
    assert held[-1].cache == 1000 * predicted
    assert all(each.resident > 1 << 20 for each in held)


def test_growth_leaves_the_first_chunk_out() -> None:
    held = [Held(10, 50, 900), Held(20, 60, 940), Held(30, 70, 980), Held(40, 80, 1080)]
    assert growth(held, "cache") == 1.0
    assert growth(held, "resident") == 6.0
    assert halves(held) == (4.0, 10.0)
    assert growth(held[:1], "resident") is None
    assert halves(held[:1]) == (None, None)
