"""Rounding to a master weight: right on average at every size."""

from math import sqrt

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fourge.core import rng
from fourge.optim import masters

COUNT = 1 << 15


def bits(seed: int, count: int = COUNT) -> torch.Tensor:
    words = rng.key(seed, 0, "test").words(torch.device("cpu"))
    return rng.element_bits(words, torch.arange(count))


@pytest.mark.parametrize("exponent", range(-126, 127))
def test_stochastic_rounding_is_unbiased_on_every_bf16_binade(exponent: int) -> None:
    torch.manual_seed(exponent + 200)
    mantissa = 1 + torch.rand(1).item()
    value = torch.full((COUNT,), mantissa, dtype=torch.float64) * 2.0**exponent
    value = value.float()
    rounded = masters.round_stochastic(value, bits(exponent)).double()
    step = 2.0 ** (exponent - 7)
    share = (value[0].double() / step) % 1
    standard_error = sqrt(share * (1 - share) / COUNT) + 1e-12
    assert abs(((rounded - value.double()) / step).mean()) <= 4 * standard_error
    assert torch.equal(rounded, rounded.float().bfloat16().double())


def test_stochastic_rounding_keeps_what_fits_and_the_sign() -> None:
    value = torch.randn(COUNT).bfloat16().float()
    assert torch.equal(masters.round_stochastic(value, bits(1)), value)
    other = torch.randn(COUNT)
    assert torch.equal(
        masters.round_stochastic(-other, bits(2)), -masters.round_stochastic(other, bits(2))
    )


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_nearest_rounding_is_torch_s(values: list[float]) -> None:
    value = torch.tensor(values)
    value = value[value.abs() < 3e38]
    assert torch.equal(masters.round_nearest(value), value.bfloat16().float())


@given(st.integers(-100, 120), st.integers(0, 10_000))
def test_the_residual_makes_a_24_bit_weight(exponent: int, seed: int) -> None:
    torch.manual_seed(seed)
    value = torch.randn(512) * 2.0**exponent
    near, code = masters.split(value, bits(seed, 512))
    joined = masters.join(near, code.to(torch.int8))
    unit = masters.half_step(near) / 127
    assert ((joined - value).abs() <= unit * 1.001).all()
    assert torch.equal(near, value.bfloat16().float())


def test_the_residual_is_right_on_average() -> None:
    value = torch.full((COUNT,), 0.0203174)
    near, code = masters.split(value, bits(3))
    unit = (masters.half_step(near) / 127)[0].double()
    error = (masters.join(near, code.to(torch.int8)).double() - value.double()) / unit
    assert abs(error.mean()) < 4 * 0.5 / sqrt(COUNT) + 0.01
    assert error.abs().amax() > 0.01


def test_zero_and_the_smallest_numbers_keep_a_residual_of_their_size() -> None:
    value = torch.tensor([0.0, -0.0, 1e-38, -3e-39])
    near, code = masters.split(value, torch.zeros(4, dtype=torch.int32))
    assert torch.isfinite(masters.join(near, code.to(torch.int8))).all()
