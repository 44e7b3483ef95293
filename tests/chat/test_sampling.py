from dataclasses import asdict
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GenerationConfig

from fourge.chat.conversation import ids_of
from fourge.chat.sampling import Chooser, Sampling, processors, seed_of
from fourge.chat.session import Limits
from fourge.core.errors import ConfigError
from fourge.data.records import Message
from tests.chat.samples import model_for, session_of
from tests.conftest import byte_tokenizer

MODEL = model_for(byte_tokenizer())
samplings = st.builds(
    Sampling,
    temperature=st.floats(0.1, 3.0),
    top_k=st.integers(0, 40),
    top_p=st.floats(0.05, 1.0),
    min_p=st.floats(0.0, 0.9),
    repetition_penalty=st.floats(0.5, 2.0),
)


@given(sampling=samplings, seed=st.integers(0, 10_000))
def test_logits_are_changed_just_as_transformers_own_generate_changes_them(
    sampling: Sampling, seed: int
) -> None:
    draws = torch.Generator().manual_seed(seed)
    logits_BV = 4 * torch.randn(1, 100, generator=draws)
    context_BT = torch.randint(100, (1, 12), generator=draws)
    given = {name: value for name, value in asdict(sampling).items() if name != "seed"}
    config = GenerationConfig(do_sample=True, **given)
    theirs = MODEL._get_logits_processor(config, input_ids_seq_length=12, device="cpu")
    expected = theirs(context_BT, logits_BV.clone())
    assert torch.equal(processors(sampling)(context_BT, logits_BV.clone()), expected)


@pytest.mark.parametrize(
    "sampling",
    [Sampling(), Sampling(repetition_penalty=1.3), Sampling(temperature=1.0, seed=5),
     Sampling(temperature=0.8, top_k=30, top_p=0.9, min_p=0.01, repetition_penalty=1.1)],
)  # fmt: skip
def test_a_turn_is_what_transformers_own_generate_says(sampling: Sampling) -> None:
    session = session_of("smollm2")
    prompt = ids_of(session.template.prompt([Message("user", "hello")]))
    answer = session.ask("hello", sampling, Limits(max_tokens=20))
    model = session.feed.model
    settings = {name: value for name, value in asdict(sampling).items() if name != "seed"}
    if sampling.temperature == 0.0:
        settings = {"repetition_penalty": sampling.repetition_penalty}
    config = GenerationConfig(
        do_sample=sampling.temperature > 0, max_new_tokens=20, eos_token_id=list(session.stop_ids),
        pad_token_id=0, **settings,
    )  # fmt: skip
    torch.manual_seed(seed_of(sampling.seed, 1))
    out = model.generate(torch.tensor([prompt]), generation_config=config)[0, len(prompt) :]
    theirs = [token for token in out.tolist() if token not in session.stop_ids]
    assert list(answer.ids) == theirs
    assert len(theirs) > 3


@settings(max_examples=30)
@given(seed=st.integers(-5, 5), turn=st.integers(1, 9))
def test_a_turns_draws_depend_on_seed_and_turn_alone(seed: int, turn: int) -> None:
    logits = torch.zeros(1000)

    def drawn(seed: int, turn: int) -> list[int]:
        chooser = Chooser(Sampling(temperature=1.0, seed=seed), turn, torch.device("cpu"))
        return [chooser.choose(logits, []) for _ in range(4)]

    torch.manual_seed(0)
    one = drawn(seed, turn)
    torch.rand(3)
    assert drawn(seed, turn) == one
    assert drawn(seed + 1, turn) != one
    assert drawn(seed, turn + 1) != one


def test_greedy_takes_the_largest_and_the_penalty_counts() -> None:
    logits = torch.tensor([1.0, 3.0, 2.9])
    device = torch.device("cpu")
    assert Chooser(Sampling(), 1, device).choose(logits, [1]) == 1
    assert Chooser(Sampling(repetition_penalty=1.5), 1, device).choose(logits, [1]) == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [("temperature", -0.1), ("temperature", float("inf")), ("top_k", -1), ("top_p", 0.0),
     ("top_p", 1.1), ("min_p", -0.1), ("min_p", 2.0), ("repetition_penalty", 0.0)],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name.replace("_", " ")):
        Sampling(**{name: value})
