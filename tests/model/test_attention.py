"""A sight takes the place of a mask; without one, attention is transformers' own."""

from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from fourge.model import attention
from fourge.model.attention import SightMask, attend, attending_by_sight, takes_sight
from tests.chat.samples import model_for, whole
from tests.conftest import byte_tokenizer

draw = torch.Generator().manual_seed(0)


class Sevens:
    def attended(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, **settings: Any
    ) -> Tensor:
        assert settings == {"scaling": 0.3}
        return torch.full_like(query, 7)


def some() -> tuple[nn.Module, Tensor, Tensor, Tensor]:
    module = nn.Module()
    module.num_key_value_groups = 3  # type: ignore[assignment]
    key, value = (torch.randn(3, 2, 7, 8, generator=draw) for _ in range(2))
    return module, torch.randn(3, 6, 4, 8, generator=draw), key, value


def test_a_sight_computes_the_attention_itself() -> None:
    out, weights = attend(*some(), SightMask.of(Sevens()), scaling=0.3)
    assert weights is None
    assert (out == 7).all()


def test_an_attention_that_knows_of_no_sights_fails() -> None:
    with pytest.raises((RuntimeError, IndexError)):
        sdpa_attention_forward(*some(), SightMask.of(Sevens()))


@pytest.mark.parametrize("masked", [False, True])
def test_anything_else_is_left_to_transformers(masked: bool) -> None:
    given = some()
    mask = torch.rand(3, 1, 4, 7, generator=draw) < 0.6 if masked else None
    ours, _ = attend(*given, mask, scaling=0.3)
    theirs, _ = sdpa_attention_forward(*given, mask, scaling=0.3)
    assert torch.equal(ours, theirs)


def test_a_model_attends_by_sight_for_the_block_alone() -> None:
    model = model_for(byte_tokenizer(), "llama")
    before = whole(model, [1, 2, 3])
    with attending_by_sight(model):
        assert model.config._attn_implementation == attention.NAME
        assert torch.equal(whole(model, [1, 2, 3]), before)
    assert model.config._attn_implementation == "sdpa"
    with suppress(ZeroDivisionError), attending_by_sight(model):
        raise ZeroDivisionError
    assert model.config._attn_implementation == "sdpa"


def test_a_model_with_another_attention_keeps_it_and_takes_no_sight() -> None:
    model = model_for(byte_tokenizer(), "llama")
    assert takes_sight(model)
    model.config._attn_implementation = "eager"
    with attending_by_sight(model):
        assert model.config._attn_implementation == "eager"
    assert not takes_sight(model)
