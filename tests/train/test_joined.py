from typing import Any

import pytest
import torch

from fourge.data.batch import Batch, collate
from fourge.data.render import Rendered
from fourge.train import joined as module
from fourge.train import step
from fourge.train.joined import can_join, joined
from fourge.train.step import target_states
from tests.conftest import tiny_config, tiny_model

BEGINNING = [5, 6, 7, 8, 9, 10, 11, 12]


def row(rest: list[int], targets: int) -> Rendered:
    tokens = BEGINNING + rest
    is_target = [False] * (len(tokens) - targets) + [True] * targets
    return Rendered(tuple(tokens), tuple(is_target), "row")


def batch_of(*rows: Rendered) -> Batch:
    return collate(list(rows), 0, [(0, n) for n in range(len(rows))])


ROWS = row([20, 21, 22], 1), row([30, 31, 32, 33, 34, 35, 36, 37], 3), row([20, 41], 1)


def states(model: Any, batch: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad()
    hidden = target_states(model, batch)
    (hidden * torch.linspace(-1, 1, hidden.numel()).view_as(hidden)).sum().backward()
    named = model.named_parameters()
    return hidden.detach(), {n: p.grad.clone() for n, p in named if p.grad is not None}


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_joined_rows_give_the_states_and_gradients_of_padded_ones(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, batch = tiny_model(family), batch_of(*ROWS)
    seen: list[tuple[int, ...]] = []
    model.base_model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    one, gradients = states(model, batch)
    monkeypatch.setattr(step, "can_join", lambda config: False)
    two, padded = states(model, batch)
    assert seen == [(1, 8 + 3 + 8 + 1), (3, 16)]
    assert len(one) == batch.targets
    torch.testing.assert_close(one, two, rtol=0, atol=1e-5)
    assert gradients.keys() == padded.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, padded[name], rtol=1e-4, atol=1e-4)


def test_a_row_sees_what_it_would_alone() -> None:
    together = joined(batch_of(*ROWS))
    assert together is not None
    rest = [20, 21, 22, 30, 31, 32, 33, 34, 35, 36, 37, 41]
    assert together.token_S.tolist() == [*BEGINNING, *rest]
    assert together.position_S.tolist() == [*range(8), *range(8, 11), *range(8, 16), 9]
    may = together.mask(torch.float32)[0, 0] == 0
    assert may[19].nonzero()[:, 0].tolist() == [*range(8), 8, 19]
    assert may[12].nonzero()[:, 0].tolist() == [*range(8), 11, 12]
    assert may[3].nonzero()[:, 0].tolist() == [0, 1, 2, 3]


def test_a_shared_token_has_a_target_for_each_of_its_rows() -> None:
    rows = [Rendered((5, 6, 7, 8), (False, False, True, True), "a"),
            Rendered((5, 6, 9), (False, False, True), "b")]  # fmt: skip
    together = joined(batch_of(*rows, *rows))
    assert together is not None
    assert together.token_S.tolist() == [5, 6, 7, 8, 9]
    assert together.target_at_N.tolist() == [1, 2, 1, 1, 2, 1]  # the 6 foretells 7 and 9


def test_rows_that_begin_differently_are_trees_of_their_own() -> None:
    others = [Rendered((50, *each.token), (False, *each.is_target), "other") for each in ROWS]
    together = joined(batch_of(*ROWS, *others))
    assert together is not None
    assert len(together.token_S) == 20 + 21
    may = together.mask(torch.float32)[0, 0] == 0
    assert not may[20:, :20].any()
    assert not may[:20, 20:].any()


def test_what_is_not_shorter_or_too_long_stays_padded(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = batch_of(ROWS[1])
    apart = collate([Rendered((n, n, n, n), (False, True, True, True), "x") for n in (3, 4)], 0,
                    [(0, 0), (0, 1)])  # fmt: skip
    assert joined(alone) is None
    assert joined(apart) is None
    monkeypatch.setattr(module, "MOST", 19)
    assert joined(batch_of(*ROWS)) is None


def test_models_with_windows_or_other_attention_are_left_alone() -> None:
    assert can_join(tiny_model("llama").config)
    assert not can_join(tiny_model("gemma3_text").config)
    config = tiny_config("qwen3", tied=True)
    config._attn_implementation = "flex_attention"
    assert not can_join(config)
    windowed = tiny_model("llama").config
    windowed.sliding_window = 4
    assert not can_join(windowed)
