"""Conversations under templates and tokenizers that nobody here wrote: Qwen3's and SmolLM2's.

And with the embedded model itself.
"""

from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from fourge.chat.batch import reply_to_all
from fourge.chat.conversation import Template
from fourge.chat.load import load
from fourge.chat.session import Limits, Session
from fourge.checkpoint.source import Opened, open_any
from fourge.data.records import Message
from fourge.model.embedded import EMBEDDED
from tests.chat.samples import model_for, says, whole
from tests.conftest import qwen3_tokenizer_folder

SMALL: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 1,
                         "num_key_value_heads": 1}  # fmt: skip


def session_with(tokenizer: Any, **arguments: Any) -> Session:
    return Session(model_for(tokenizer, **SMALL), Template(tokenizer, arguments))


def require_whole(session: Session) -> None:
    """transformers' own rendering is in the cache, and the logits are those of one full pass."""
    ids, tokenizer = list(session.feed.ids), session.template.tokenizer
    messages = [{"role": m.role, "content": m.content} for m in session.messages]
    assert tokenizer.decode(ids) == tokenizer.apply_chat_template(messages, tokenize=False)
    logits = session.feed.feed([5])[-1]
    expected = whole(session.feed.model, [*ids, 5])[-1]
    # Of the largest logit: thirty layers in float32 differ by 5e-5 where logits reach 30.
    bound = 1e-5 * max(1.0, expected.abs().max().item())
    torch.testing.assert_close(logits, expected, rtol=0, atol=bound)
    session.feed.rewind(len(ids))


@pytest.fixture(scope="module")
def opened() -> Opened:
    return open_any(EMBEDDED)


@pytest.fixture(scope="module")
def smollm2(opened: Opened) -> Any:
    return opened.source.tokenizer()


@pytest.mark.parametrize("thinking", [True, False])
def test_qwen3_as_it_is(thinking: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = AutoTokenizer.from_pretrained(qwen3_tokenizer_folder())
    session = session_with(tokenizer, enable_thinking=thinking)
    stop = tokenizer.convert_tokens_to_ids("<|im_end|>")
    thought = "<think>\nlet me see\n</think>\n\n" if thinking else ""
    replies = [f"{thought}\u4f60\u597d {n}" for n in range(3)]
    says(monkeypatch, *[[*session.template.renderer.encode(reply), stop] for reply in replies])
    for turn, reply in enumerate(replies):
        before = len(session.feed.ids)
        answer = session.ask(f"question {turn}")
        assert answer.reply == reply
        require_whole(session)
        if turn:  # an earlier thought, or the empty one that stands for it, is dropped
            assert 0 < answer.reused < before
            assert answer.dropped == before - answer.reused
    assert tokenizer.decode(session.feed.ids).count("<think>") == 1


def test_smollm2_as_it_is(smollm2: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_with(smollm2)
    says(monkeypatch, *[[*session.template.renderer.encode(f"reply {n}"), 2] for n in range(3)])
    for turn in range(3):
        before = len(session.feed.ids)
        answer = session.ask(f"question {turn}")
        assert (answer.reply, answer.reused, answer.dropped) == (f"reply {turn}", before, 0)
        require_whole(session)
    assert smollm2.decode(session.feed.ids).startswith("<|im_start|>system\nYou are a helpful")


def test_a_system_text_of_ones_own_takes_the_place_of_smollm2s(smollm2: Any) -> None:
    session = session_with(smollm2)
    session.begin([Message("system", "Be kind.")])
    session.ask("hello", limits=Limits(max_tokens=3))
    assert "helpful" not in smollm2.decode(session.feed.ids)
    require_whole(session)


@pytest.mark.model
@pytest.mark.slow
def test_the_embedded_model_remembers_and_says_the_same_in_a_batch(
    opened: Opened, smollm2: Any
) -> None:
    session = Session(load(opened).model, Template(smollm2))
    prompts = ["What is the capital of France?", "Hi"]
    asked = [[Message("user", prompt)] for prompt in prompts]
    replies = reply_to_all(session.feed.model, session.template, asked, max_tokens=8)
    for prompt, reply in zip(prompts, replies, strict=True):
        session.begin()
        assert session.ask(prompt, limits=Limits(max_tokens=8)).ids == reply.ids
    session.begin()
    assert "Paris" in session.ask(prompts[0], limits=Limits(max_tokens=8)).reply
    assert "Rome" in session.ask("And of Italy?", limits=Limits(max_tokens=8)).reply
    require_whole(session)
