from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fourge.core.errors import ConfigError, FormatError
from fourge.formats.stored import in_memory
from fourge.model.between import between
from fourge.model.source import Source
from fourge.nvfp4.matrix import dequantize, quantize


def source(**tensors: Any) -> Source:
    stored = {name: in_memory(value) for name, value in tensors.items()}
    return Source(Path("x"), "safetensors", None, stored, lambda: None, lambda folder: None)


def values(mixed: Source) -> dict[str, Tensor]:
    return {name: stored.dense() for name, stored in mixed.tensors.items()}


def test_the_ends_are_the_two_models_and_the_middle_lies_between() -> None:
    base, tuned = source(w=torch.tensor([1.0, -2.0])), source(w=torch.tensor([3.0, -2.0]))
    for share, expected in ((0.0, [1.0, -2.0]), (1.0, [3.0, -2.0]), (0.25, [1.5, -2.0])):
        found = values(between(base, tuned, share))["w"]
        assert found.dtype == torch.bfloat16
        assert found.tolist() == expected


def test_a_tensor_may_be_nvfp4_on_either_side() -> None:
    weight = torch.randn(4, 32, generator=torch.Generator().manual_seed(0))
    matrix = quantize(weight)
    base, tuned = source(w=matrix), source(w=weight)
    assert torch.equal(values(between(base, tuned, 0.0))["w"], dequantize(matrix).bfloat16())
    assert torch.equal(values(between(base, tuned, 1.0))["w"], weight.bfloat16())


def test_nothing_is_read_before_it_is_asked_for() -> None:
    def refuse() -> Tensor:
        raise AssertionError("read")

    one = source(w=torch.zeros(2))
    stored = replace(one.tensors["w"], read=refuse)
    mixed = between(replace(one, tensors={"w": stored}), one, 0.5)
    assert mixed.tensors["w"].nbytes == 4


def test_models_that_do_not_belong_together_are_refused() -> None:
    one = source(w=torch.zeros(2))
    with pytest.raises(FormatError, match="was not tuned from"):
        between(one, source(w=torch.zeros(2), v=torch.zeros(1)), 0.5)
    with pytest.raises(FormatError, match="shapes"):
        between(one, source(w=torch.zeros(3)), 0.5)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_lies_between(share: float) -> None:
    one = source(w=torch.zeros(2))
    with pytest.raises(ConfigError, match="is not between"):
        between(one, one, share)
