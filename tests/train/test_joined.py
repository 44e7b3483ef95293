from typing import Any

import pytest
import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from fourge.data.batch import Batch, collate
from fourge.data.render import Rendered
from fourge.model.attention import SightMask
from fourge.model.runs import Run, Runs
from fourge.train import step
from fourge.train.joined import Joined, can_join, joined
from fourge.train.step import target_states
from tests.conftest import tiny_model

BEGINNING, END = [5, 6, 7, 8, 9, 10, 11, 12], 2


def row(rest: list[int], targets: int) -> Rendered:
    """A row that ends with a target of its own, which is foretold and not read."""
    tokens = [*BEGINNING, *rest, END]
    is_target = [False] * (len(tokens) - targets) + [True] * targets
    return Rendered(tuple(tokens), tuple(is_target), "row")


def batch_of(*rows: Rendered) -> Batch:
    return collate(list(rows), 0, [(0, n) for n in range(len(rows))])


def runs_of(together: Joined) -> tuple[Run, ...]:
    return together.runs(torch.float32, torch.device("cpu")).runs


def seen_by(together: Joined, token: int) -> list[int]:
    """The places that a token attends to, in order."""
    runs, ends = runs_of(together), [0]
    for run in runs:
        ends.append(ends[-1] + len(run.mask_QT))
    own = next(n for n in range(len(runs)) if token < ends[n + 1])
    places = [at for n in (*runs[own].before, own) for at in range(ends[n], ends[n + 1])]
    may = runs[own].mask_QT[token - ends[own]] == 0
    return [place for place, allowed in zip(places, may.tolist(), strict=True) if allowed]


ROWS = row([20, 21, 22], 1), row([30, 31, 32, 33, 34, 35, 36, 37], 3), row([20, 41], 1)


def states(model: Any, batch: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad()
    hidden = target_states(model, batch)
    (hidden * torch.linspace(-1, 1, hidden.numel()).view_as(hidden)).sum().backward()
    named = model.named_parameters()
    return hidden.detach(), {n: p.grad.clone() for n, p in named if p.grad is not None}


@pytest.mark.parametrize(
    "family", ["llama", "qwen2", "qwen3", "nemotron", "mistral", "gemma3_text"]
)
def test_joined_rows_give_the_states_and_gradients_of_padded_ones(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, batch = tiny_model(family), batch_of(*ROWS)
    seen: list[tuple[int, ...]] = []
    model.base_model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    one, gradients = states(model, batch)
    monkeypatch.setattr(step, "can_join", lambda model, longest: False)
    two, padded = states(model, batch)
    assert seen == [(1, 8 + 3 + 8 + 1), (3, 17)]
    assert len(one) == batch.targets
    torch.testing.assert_close(one, two, rtol=0, atol=1e-5)
    assert gradients.keys() == padded.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, padded[name], rtol=1e-4, atol=1e-4)


def test_joined_rows_in_bf16_are_as_near_to_float32_as_padded_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batch, exact = batch_of(*ROWS), states(tiny_model("qwen3"), batch_of(*ROWS))[0]
    model = tiny_model("qwen3").bfloat16()
    one = states(model, batch)[0]
    monkeypatch.setattr(step, "can_join", lambda model, longest: False)
    two = states(model, batch)[0]
    assert one.dtype == two.dtype == torch.bfloat16
    assert (one - exact).abs().mean() < 1.5 * (two - exact).abs().mean()


def test_attention_that_does_not_know_of_runs_fails() -> None:
    together = joined(batch_of(*ROWS))
    assert together is not None
    query, key = torch.randn(1, 4, 20, 8), torch.randn(1, 2, 20, 8)
    module = torch.nn.Module()
    module.num_key_value_groups = 2  # type: ignore[assignment]
    with pytest.raises(RuntimeError, match="size"):
        sdpa_attention_forward(module, query, key, key, SightMask.of(Runs(runs_of(together))))


def test_a_row_sees_what_it_would_alone() -> None:
    together = joined(batch_of(*ROWS))
    assert together is not None
    rest = [20, 21, 22, 30, 31, 32, 33, 34, 35, 36, 37, 41]
    assert together.token_S.tolist() == [*BEGINNING, *rest]
    assert together.position_S.tolist() == [*range(8), *range(8, 11), *range(8, 16), 9]
    assert seen_by(together, 19) == [*range(8), 8, 19]
    assert seen_by(together, 12) == [*range(8), 11, 12]
    assert seen_by(together, 3) == [0, 1, 2, 3]
    # the beginning, 20, its two ways on (of which 41 came last), and the row that begins with 30
    assert [run.before for run in runs_of(together)] == [(), (0,), (0, 1), (0,), (0, 1)]
    assert [len(run.mask_QT) for run in runs_of(together)] == [8, 1, 2, 8, 1]


def test_a_shared_token_has_a_target_for_each_of_its_rows() -> None:
    rows = [Rendered((5, 6, 7, 8), (False, False, True, True), "a"),
            Rendered((5, 6, 9), (False, False, True), "b")]  # fmt: skip
    together = joined(batch_of(*rows, *rows))
    assert together is not None
    assert together.token_S.tolist() == [5, 6, 7]  # 8 and 9 are foretold, not read
    assert together.target_at_N.tolist() == [1, 2, 1, 1, 2, 1]  # the 6 foretells 7 and 9


def test_what_comes_behind_the_last_target_is_left_out() -> None:
    rows = [Rendered((5, 6, 7, n, 1, 1), (False, False, True, True, False, False), "a")
            for n in (8, 9)]  # fmt: skip
    together = joined(batch_of(*rows))
    assert together is not None
    assert together.token_S.tolist() == [5, 6, 7]
    assert together.target_at_N.tolist() == [1, 2, 1, 2]


def test_rows_that_begin_differently_are_trees_of_their_own() -> None:
    others = [Rendered((50, *each.token), (False, *each.is_target), "other") for each in ROWS]
    together = joined(batch_of(*ROWS, *others))
    assert together is not None
    assert len(together.token_S) == 20 + 21
    for token in range(41):
        assert all((seen < 20) == (token < 20) for seen in seen_by(together, token))


def test_what_is_not_shorter_stays_padded() -> None:
    alone = batch_of(ROWS[1])
    apart = collate([Rendered((n,) * 6, (False, *[True] * 5), "x") for n in (3, 4)], 0,
                    [(0, 0), (0, 1)])  # fmt: skip
    assert joined(alone) is None
    assert joined(apart) is None


def test_models_with_windows_or_other_attention_are_left_alone() -> None:
    assert can_join(tiny_model("llama"), 9999)
    assert not can_join(tiny_model("stablelm"), 9)  # its attention is its own
    other = tiny_model("qwen3")
    other.config._attn_implementation = "flex_attention"
    assert not can_join(other, 9)
    windowed = tiny_model("gemma3_text")
    windowed.config.sliding_window = 16
    assert can_join(windowed, 16)
    assert not can_join(windowed, 17)
    windowed.config.layer_types = ["chunked_attention"]
    assert not can_join(windowed, 9)
    recurrent = tiny_model("llama")
    recurrent.config.block_types = ["recurrent", "attention"]
    assert not can_join(recurrent, 9)


def test_a_row_beyond_the_window_is_padded_and_one_within_it_is_the_same_joined() -> None:
    model, batch = tiny_model("gemma3_text"), batch_of(*ROWS)
    widths: list[tuple[int, ...]] = []
    model.base_model.register_forward_pre_hook(
        lambda module, args, kwargs: widths.append(tuple(kwargs["input_ids"].shape)),
        with_kwargs=True,
    )
    for window in (17, 16):
        model.config.sliding_window = window
        target_states(model, batch)
    assert widths == [(1, 20), (3, 17)]
