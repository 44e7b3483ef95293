"""What the kernels of attention take, and what is left to torch."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fourge.model import beside, lanes
from fourge.model.lanes import fits_lanes, kernel_for, kernels_beside


def some(size: int = 32, dtype: torch.dtype = torch.float32, **other: Any) -> list[Tensor]:
    return [torch.zeros(1, heads, 5, size, dtype=dtype, **other) for heads in (4, 2, 2)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_heads_of_whole_registers_are_taken_however_tokens_lie(dtype: torch.dtype) -> None:
    assert fits_lanes(*some(dtype=dtype))
    assert fits_lanes(*(each.transpose(1, 2) for each in some(dtype=dtype)))


def test_everything_else_is_not() -> None:
    query, key, value = some()
    assert not fits_lanes(*some(size=24))
    assert not fits_lanes(*some(dtype=torch.float16))
    assert not fits_lanes(*some(device="meta"))
    assert not fits_lanes(query, key.bfloat16(), value)
    assert not fits_lanes(query, key, value.bfloat16())
    assert not fits_lanes(query, key, value[..., :16])
    scattered = value.transpose(2, 3).contiguous().transpose(2, 3)
    for at in range(3):
        given = some()
        given[at] = scattered if at else query.transpose(2, 3).contiguous().transpose(2, 3)
        assert not fits_lanes(*given)


def test_a_kernel_has_the_name_of_its_dtype_and_as_many_pointers_as_are_said() -> None:
    kernels = kernels_beside(beside.__file__, attend=9)
    if kernels is None:
        pytest.skip("this processor has none")
    for dtype, name in ((torch.float32, "attend_float32"), (torch.bfloat16, "attend_bf16")):
        kernel = kernel_for(kernels, "attend", dtype)
        assert kernel.__name__ == name
        assert len(kernel.argtypes) == 9 + 2


def test_where_nothing_can_be_compiled_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "library", lambda source: None)
    assert kernels_beside(beside.__file__, attend=9) is None
