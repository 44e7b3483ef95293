from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fourge.nvfp4.blocks import (
    E2M1_LEVELS,
    block_amax,
    decode,
    dequantize_words_,
    encode,
    nearest_level,
    pack,
    round_e4m3,
    unpack,
)


def nearest_by_search(value: float) -> float:
    """The definition, in exact arithmetic: nearest level, ties to the even index."""
    distance = [(abs(Fraction(value) - Fraction(x)), i % 2, x) for i, x in enumerate(E2M1_LEVELS)]
    return min(distance)[2]


def test_every_code_decodes_to_itself() -> None:
    codes = torch.arange(16, dtype=torch.uint8)
    assert decode(codes).tolist() == [*E2M1_LEVELS, *(-x for x in E2M1_LEVELS)]
    assert torch.equal(encode(decode(codes)), codes)


@pytest.mark.parametrize(
    ("value", "level"),
    [(0.25, 0.0), (0.75, 1.0), (1.25, 1.0), (1.75, 2.0), (2.5, 2.0), (3.5, 4.0), (5.0, 4.0)],
)
def test_a_tie_goes_to_the_even_code(value: float, level: float) -> None:
    for sign in (1, -1):
        assert decode(encode(torch.tensor([sign * value]))).item() == sign * level
    above = torch.nextafter(torch.tensor(value), torch.tensor(9.0))
    below = torch.nextafter(torch.tensor(value), torch.tensor(-9.0))
    assert decode(encode(above)) > decode(encode(below))


@given(st.floats(0, 6, width=32))
def test_rounding_is_that_of_exact_arithmetic(value: float) -> None:
    assert nearest_level(torch.tensor(value)).item() == nearest_by_search(value)


@pytest.mark.parametrize("value", [6.1, 7.0, 1e30, float("inf")])
def test_beyond_six_it_saturates(value: float) -> None:
    assert decode(encode(torch.tensor([value, -value]))).tolist() == [6.0, -6.0]


def test_the_sign_of_a_zero_is_kept() -> None:
    assert encode(torch.tensor([0.0, -0.0, -0.1])).tolist() == [0, 8, 8]


@given(st.lists(st.integers(0, 15), min_size=8, max_size=8))
def test_unpack_undoes_pack(codes: list[int]) -> None:
    tensor = torch.tensor(codes * 2, dtype=torch.uint8)
    packed = pack(tensor)
    assert packed.shape == (8,)
    assert torch.equal(unpack(packed), tensor)


def test_the_even_column_is_in_the_low_half() -> None:
    codes = torch.tensor([1, 2, 3, 4, 5, 6, 7, 8], dtype=torch.uint8)
    assert pack(codes).tolist() == [0x21, 0x43, 0x65, 0x87]


def test_decoding_words_is_decoding_codes() -> None:
    packed = torch.randint(0, 256, (5, 8), dtype=torch.uint8)
    unit = torch.rand(5)
    out = torch.empty(5, 2, 8)
    dequantize_words_(packed.view(torch.int32), unit, out)
    assert torch.equal(out.view(5, 16), decode(unpack(packed)) * unit.unsqueeze(-1))


def test_e4m3_rounding_keeps_all_its_own_numbers() -> None:
    every = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    finite = every[torch.isfinite(every)]
    assert len(finite) == 254
    assert torch.equal(round_e4m3(finite), finite)


def test_the_block_maximum_ignores_signs() -> None:
    assert block_amax(torch.tensor([[1.0, -3.0], [0.5, 0.25]])).tolist() == [3.0, 0.5]
