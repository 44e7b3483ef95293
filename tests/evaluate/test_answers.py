from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fourge.core.errors import ConfigError
from fourge.evaluate.answers import answer_all
from tests.conftest import byte_tokenizer, tiny_model

ASKED = [
    [{"role": "user", "content": text}]
    for text in ("hi", "a much longer question than the first one", "who?", "the end of it all")
]


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model("qwen3")


def alone(model: Any, tokenizer: Any, messages: list[dict[str, str]], tokens: int) -> list[int]:
    prompt = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    out = model.generate(**prompt, max_new_tokens=tokens, do_sample=False, pad_token_id=259)
    found: list[int] = out[0, prompt["input_ids"].shape[1] :].tolist()
    return found


@pytest.mark.parametrize("batch", [1, 2, 3, 32])
def test_a_batch_answers_as_each_question_alone(model: Any, batch: int) -> None:
    tokenizer = byte_tokenizer()
    said = answer_all(model, tokenizer, ASKED, max_tokens=12, batch=batch)
    for messages, answer in zip(ASKED, said, strict=True):
        token = alone(model, tokenizer, messages, 12)
        kept = token[: token.index(259)] if 259 in token else token
        assert answer.text == tokenizer.decode(kept, skip_special_tokens=True).strip()
        assert (answer.tokens, answer.stopped) == (len(kept), 259 in token)


def test_an_answer_ends_at_any_stop_token(model: Any) -> None:
    tokenizer = byte_tokenizer()
    first = alone(model, tokenizer, ASKED[0], 3)
    before = model.generation_config.eos_token_id
    model.generation_config.eos_token_id = [259, first[1]]
    try:
        (said,) = answer_all(model, tokenizer, ASKED[:1], max_tokens=8)
    finally:
        model.generation_config.eos_token_id = before
    assert said.stopped
    assert said.tokens == first.index(first[1])


def test_progress_is_told_batch_by_batch(model: Any) -> None:
    told: list[tuple[int, int]] = []
    answer_all(model, byte_tokenizer(), ASKED, max_tokens=2, batch=3,
               progress=lambda *each: told.append(each))  # fmt: skip
    assert told == [(3, 4), (4, 4)]
    assert answer_all(model, byte_tokenizer(), [], max_tokens=2) == []


def test_a_model_without_a_template_is_refused(model: Any) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(ConfigError, match="chat template"):
        answer_all(model, tokenizer, ASKED, max_tokens=2)


def test_a_model_that_cannot_stop_is_refused(tiny_folder: Callable[..., Path]) -> None:
    other = tiny_model("llama")
    other.generation_config.eos_token_id = None
    tokenizer = byte_tokenizer()
    tokenizer.eos_token = None
    with pytest.raises(ConfigError, match="end-of-turn"):
        answer_all(other, tokenizer, ASKED, max_tokens=2)


def test_the_global_generator_is_left_alone(model: Any) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    answer_all(model, byte_tokenizer(), ASKED[:2], max_tokens=4)
    assert torch.equal(torch.get_rng_state(), before)
