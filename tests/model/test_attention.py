"""Attention without copies gives what transformers' own gives."""

from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from fourge.model import attention
from fourge.model.attention import attend, attending_better
from tests.chat.samples import model_for, whole
from tests.conftest import byte_tokenizer

draw = torch.Generator().manual_seed(0)


def attended(
    groups: int, count: int, mask: Tensor | None, **settings: Any
) -> tuple[Tensor, Tensor]:
    """Ours and theirs, for 3 rows, 2 key-value heads and 7 columns."""
    module = torch.nn.Module()
    module.num_key_value_groups = groups  # type: ignore[assignment]
    query = torch.randn(3, 2 * groups, count, 8, generator=draw)
    key, value = (torch.randn(3, 2, 7, 8, generator=draw) for _ in range(2))
    arguments = (module, query, key, value, mask)
    return (
        attend(*arguments, scaling=0.3, **settings)[0],
        sdpa_attention_forward(*arguments, scaling=0.3, **settings)[0],
    )


def some_columns(rows: int = 3, heads: int = 1, count: int = 1) -> Tensor:
    mask = torch.rand(rows, heads, count, 7, generator=draw) < 0.6
    mask[..., -1] = True
    return mask


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_one_token_of_each_row_sees_what_it_sees_with_copies(groups: int) -> None:
    ours, theirs = attended(groups, 1, some_columns())
    assert ours.shape == theirs.shape == (3, 1, 2 * groups, 8)
    assert torch.allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize(
    ("count", "mask", "settings"),
    [
        (1, None, {}),
        (4, some_columns(count=4), {}),
        (1, some_columns(heads=6), {}),
        (1, some_columns(), {"position_bias": torch.randn(1, 6, 1, 7)}),
    ],
    ids=["no mask", "several tokens", "a mask for each head", "a bias for each head"],
)
def test_anything_else_is_left_to_transformers(
    count: int, mask: Tensor | None, settings: dict[str, Any]
) -> None:
    ours, theirs = attended(3, count, mask, **settings)
    assert torch.equal(ours, theirs)


def test_nothing_is_copied_for_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []
    plain = torch.nn.functional.scaled_dot_product_attention

    def watched(query: Tensor, key: Tensor, *args: Any, **settings: Any) -> Tensor:
        seen.append(tuple(key.shape))
        return plain(query, key, *args, **settings)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    attended(3, 1, some_columns())
    assert seen == [(3, 2, 7, 8), (3, 6, 7, 8)]


def test_a_model_attends_better_for_the_block_alone() -> None:
    model = model_for(byte_tokenizer(), "llama")
    before = whole(model, [1, 2, 3])
    with attending_better(model):
        assert model.config._attn_implementation == attention.NAME
        assert torch.equal(whole(model, [1, 2, 3]), before)
    assert model.config._attn_implementation == "sdpa"
    with suppress(ZeroDivisionError), attending_better(model):
        raise ZeroDivisionError
    assert model.config._attn_implementation == "sdpa"
    model.config._attn_implementation = "eager"
    with attending_better(model):
        assert model.config._attn_implementation == "eager"
    assert model.config._attn_implementation == "eager"
