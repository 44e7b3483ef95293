"""The count of weights that moved: every value, every code, no zero with another sign."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fourge.nvfp4.blocks import decode, unpack
from fourge.optim.moved import ROWS, Moved, changed, sampled


@given(st.integers(1, 100), st.integers(1, 3))
def test_at_most_16_rows_spread_over_the_tensor_are_a_view_of_it(rows: int, columns: int) -> None:
    stored = torch.arange(rows * columns).view(rows, columns)
    sample = sampled(stored)
    assert 1 <= len(sample) <= ROWS
    assert len(sample) == rows or len(sample) > ROWS // 2
    assert sample.data_ptr() == stored.data_ptr()
    gaps = set((sample[1:, 0] - sample[:-1, 0]).tolist())
    assert len(gaps) <= 1
    assert rows * columns - sample[-1, 0] <= (max(gaps) if gaps else columns)


def test_a_vector_is_looked_at_whole() -> None:
    assert sampled(torch.zeros(1000)).numel() == 1000
    assert sampled(torch.zeros(64, 3, 5)).shape == (16, 3, 5)


def test_codes_are_counted_by_what_they_stand_for() -> None:
    """Of all pairs of bytes. Codes 0 and 8 are both zero: such a sign has not moved."""
    after = torch.arange(256, dtype=torch.uint8)
    for value in range(256):
        before = torch.full_like(after, value)
        expected = (decode(unpack(before)) != decode(unpack(after))).sum()
        assert changed(before, after, 2) == expected, value


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_are_counted_one_by_one(dtype: torch.dtype) -> None:
    before = torch.randn(5, 7).to(dtype)
    after = before.clone()
    after[2, 3] += 1
    after[4, 6] *= 1.5
    assert changed(before, after) == 2


def test_the_share_is_over_all_tensors_of_a_step() -> None:
    moved = Moved()
    assert moved.share == 0.0
    one, two = torch.zeros(10), torch.zeros(16, 8)
    codes = torch.zeros(16, 4, dtype=torch.uint8)
    with moved.watching(one):
        one[:3] = 1
    with moved.watching(two):
        two[0] = 1
    with moved.watching(codes, 2):
        codes[1] = 0x13
    assert moved.tensors == 3
    assert moved.share == pytest.approx((3 + 8 + 8) / (10 + 128 + 128))


def test_nothing_moved_is_a_share_of_zero_and_everything_of_one() -> None:
    moved, weight = Moved(), torch.ones(100, 3)
    with moved.watching(weight):
        pass
    assert moved.share == 0.0
    moved = Moved()
    with moved.watching(weight):
        weight.mul_(2)
    assert moved.share == 1.0
