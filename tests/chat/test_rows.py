"""Rows that join and leave have the logits of each row alone."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import AutoConfig

from fourge.chat.rows import Rows, can_hold, groups
from tests.chat.samples import model_for, whole
from tests.conftest import byte_tokenizer

SHARED = [5, 9, 2, 7]
MODELS = {
    "llama": model_for(byte_tokenizer(), "llama"),
    "gemma3_text": model_for(byte_tokenizer(), "gemma3_text", sliding_window=5),
}


def expect_alone(model: Any, rows: Rows, logits_BV: torch.Tensor) -> None:
    for ids, logits_V in zip(rows.ids, logits_BV, strict=True):
        alone_V = whole(model, ids)[-1]
        assert (logits_V - alone_V).abs().max() <= 1e-5 * alone_V.abs().max()


def prompts(*lengths: int, seed: int = 0, shared: Sequence[int] = SHARED) -> list[list[int]]:
    draw = torch.Generator().manual_seed(seed)
    return [
        [*shared, *torch.randint(0, 200, (length,), generator=draw).tolist()]
        for length in sorted(lengths)
    ]


@settings(max_examples=12, deadline=None)
@example("llama", 0, [([1, 2, 14], 1, Random(0))])  # where nothing is shared, all begin so
@given(
    st.sampled_from(sorted(MODELS)),
    st.integers(0, len(SHARED)),
    st.lists(
        st.tuples(
            st.lists(st.integers(1, 14), min_size=1, max_size=4), st.integers(0, 3), st.randoms()
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_whoever_joins_and_leaves_each_row_has_the_logits_it_has_alone(
    name: str, shared: int, changes: list[tuple[list[int], int, Any]]
) -> None:
    model = MODELS[name]
    rows = Rows(model, SHARED[:shared])
    for seed, (lengths, steps, chance) in enumerate(changes):
        stay = [at for at in range(len(rows.ids)) if chance.random() < 0.5]
        others = prompts(*lengths[:2], seed=seed, shared=[3])
        join = [*prompts(*lengths, seed=seed, shared=SHARED[:shared]), *others]
        rows.change(stay, sorted(join, key=lambda each: (not rows.begins_so(each), len(each))))
        for _ in range(steps):
            logits_BV = rows.step()
            expect_alone(model, rows, logits_BV)
            for ids, token in zip(rows.ids, logits_BV.argmax(-1).tolist(), strict=True):
                ids.append(token)


def test_what_prompts_share_is_read_once_and_the_last_token_in_the_first_step() -> None:
    model, fed = MODELS["llama"], list[int]()
    hook = model.register_forward_pre_hook(lambda module, args: fed.append(args[0].numel()))
    try:
        rows = Rows(model, SHARED)
        rows.change([], prompts(3, 5, 5))
        assert fed == [len(SHARED), 3 * 4]
        rows.change([0], prompts(2))
        assert fed[2:] == [1]
        rows.change([0, 1], prompts(1))  # with nothing to read, which nobody looks at
        rows.step()
        assert fed[3:] == [1, 3]
        rows.change([], [*prompts(3), SHARED, [*SHARED[:-1], 1, 4, 8]])  # the last two do not
        assert fed[5:] == [2, 2 * 5]
    finally:
        hook.remove()


def test_columns_that_no_row_fills_are_given_up() -> None:
    rows = Rows(MODELS["llama"], SHARED)
    rows.change([], prompts(2, 30))
    assert rows.cache.get_seq_length() == 29
    rows.step()
    rows.ids[0].append(1)
    rows.change([0], [])
    assert rows.cache.get_seq_length() == 2


def test_a_row_that_is_done_is_fed_again_without_harm_to_others() -> None:
    model, rows = MODELS["llama"], Rows(MODELS["llama"], SHARED)
    rows.change([], prompts(2, 7))
    for _ in range(3):
        logits_BV = rows.step()
        alone_V = whole(model, rows.ids[1])[-1]
        assert torch.allclose(logits_BV[1], alone_V, atol=1e-5 * float(alone_V.abs().max()))
        rows.ids[1].append(int(logits_BV[1].argmax()))


@pytest.mark.parametrize("shared", [0, 2])
def test_groups_are_of_neighbours_and_no_larger_than_asked(shared: int) -> None:
    lengths = [3, 3, 4, 8, 9, 9, 30, 200]
    rows = [[0] * length for length in lengths]
    found = list(groups(rows, shared, most=20))
    assert [row for group in found for row in group] == rows
    for group in found:
        assert len(group) == 1 or len(group) * (len(group[-1]) - shared) <= 20
    assert len(found) < len(rows)
    assert list(groups([], shared)) == []


def test_a_recurrent_state_cannot_be_shared() -> None:
    class Model:
        config = AutoConfig.for_model("qwen3_next", num_hidden_layers=4)

    assert can_hold(MODELS["llama"])
    assert can_hold(MODELS["gemma3_text"])
    assert not can_hold(Model())


def test_of_several_rows_the_one_that_is_broken_is_looked_into(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = model_for(byte_tokenizer(), "llama")
    asked: list[Sequence[int]] = []
    monkeypatch.setattr("fourge.chat.rows.require_finite", lambda *given: asked.append(given[2]))
    rows, given = Rows(model, SHARED), prompts(3, 3, 3)
    given[2][-1] = 201  # which no other row has
    with torch.no_grad():
        model.model.embed_tokens.weight[201] = float("nan")
    rows.change([], given)
    rows.step()
    assert asked == [given[2]]
