from typing import Any

import pytest
import torch

from fourge.chat.stream import HALF
from fourge.core.errors import DataError
from fourge.evaluate import answers as module
from fourge.evaluate.answers import Said, answer_all, answering
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


def test_all_are_answered_as_transformers_answers_each_alone(model: Any) -> None:
    tokenizer = byte_tokenizer()
    for messages, said in zip(
        ASKED, answer_all(model, tokenizer, ASKED, max_tokens=12), strict=True
    ):
        token = alone(model, tokenizer, messages, 12)
        kept = token[: token.index(259)] if 259 in token else token
        text = tokenizer.decode(kept, skip_special_tokens=True)
        assert said.text == text.rstrip(HALF).strip()  # half a character is not said
        assert (said.tokens, said.stopped) == (len(kept), 259 in token)


def test_earlier_turns_are_heard(model: Any) -> None:
    before = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    tokenizer = byte_tokenizer()
    (said,) = answer_all(model, tokenizer, [[*before, *ASKED[0]]], max_tokens=12)
    assert said.tokens == len(alone(model, tokenizer, [*before, *ASKED[0]], 12))
    assert said != answer_all(model, tokenizer, ASKED[:1], max_tokens=12)[0]


def test_a_model_without_a_template_is_refused(model: Any) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(DataError, match="chat template"):
        answer_all(model, tokenizer, ASKED, max_tokens=2)


def test_the_global_generator_is_left_alone(model: Any) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    answer_all(model, byte_tokenizer(), ASKED[:2], max_tokens=4)
    assert torch.equal(torch.get_rng_state(), before)


def test_as_a_function_a_model_gives_texts_and_none_that_would_end_a_turn(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [each.text for each in answer_all(model, byte_tokenizer(), ASKED, max_tokens=6)]
    teachable = [text for text in answering(model, byte_tokenizer(), 6)(ASKED) if text]
    assert set(teachable) <= set(said)
    texts = ["fine", "ended<|im_end|>so", "<|im_start|>user", "a < b"]
    monkeypatch.setattr(module, "answer_all",
                        lambda *args, **options: [Said(t, 1, True) for t in texts])  # fmt: skip
    assert answering(model, byte_tokenizer(), 6)(ASKED) == ["fine", "", "", "a < b"]
