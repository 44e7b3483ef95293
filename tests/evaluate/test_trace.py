from typing import Any

import pytest
import torch

from fourge.evaluate.trace import trace
from tests.chat.samples import whole
from tests.conftest import tiny_model

PROMPT = [1, 50, 99, 7, 200, 3]


@pytest.fixture(scope="module", params=["qwen3", "llama"])
def model(request: pytest.FixtureRequest) -> Any:
    return tiny_model(request.param)


def test_the_states_are_those_that_transformers_tells_of(model: Any) -> None:
    found = trace(model, PROMPT, 1)
    with torch.no_grad():
        theirs = model(torch.tensor([PROMPT]), output_hidden_states=True, use_cache=False)
    assert list(found.states) == ["embedding", "block 0", "block 1", "norm"]
    for place, state_BTH in zip(
        ("embedding", "block 0", "norm"), theirs.hidden_states, strict=True
    ):
        torch.testing.assert_close(found.states[place], state_BTH[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.logits_TV, theirs.logits[0], rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        torch.testing.assert_close(model.base_model.norm(found.states["block 1"]),
                                   found.states["norm"])  # fmt: skip


def test_what_is_chosen_is_what_transformers_generates(model: Any) -> None:
    found = trace(model, PROMPT, 8)
    theirs = model.generate(torch.tensor([PROMPT]), max_new_tokens=8, min_new_tokens=8,
                            do_sample=False, eos_token_id=None)  # fmt: skip
    assert list(found.chosen) == theirs[0, len(PROMPT) :].tolist()
    logits_TV = whole(model, [*PROMPT, *found.chosen[:-1]])
    torch.testing.assert_close(found.logits_NV, logits_TV[-8:], rtol=1e-4, atol=1e-5)


def test_a_model_that_is_told_the_tokens_says_what_it_would_have_taken(model: Any) -> None:
    told = [11, 12, 13, 14]
    found = trace(model, PROMPT, 4, told)
    expected_TV = whole(model, [*PROMPT, *told[:-1]])[-4:]
    assert list(found.chosen) == expected_TV.argmax(-1).tolist()


def test_no_hook_is_left_behind(model: Any) -> None:
    def hooks() -> int:
        return sum(len(module._forward_hooks) for module in model.modules())

    before = hooks()  # transformers leaves its own
    trace(model, PROMPT, 2)
    assert hooks() == before
