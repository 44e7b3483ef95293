"""Packed moments: what is positive stays positive, and no update is larger than it should be."""

from math import sqrt

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fourge.core.errors import ConfigError
from fourge.optim import moments
from fourge.optim.moments import MomentFormat, block_for, format_for, new_moments

PACKED: tuple[MomentFormat, ...] = ("int8", "nvfp4")
TOP_V = {"int8": 255, "nvfp4": 15}


def round_trip_v(v: Tensor, form: MomentFormat, noise: Tensor | None = None) -> Tensor:
    noise = torch.rand(v.shape) if noise is None else noise
    code, low, step = moments.encode_v(v, noise, TOP_V[form])
    return moments.decode_v(code.to(torch.uint8), low, step)


@pytest.mark.parametrize("form", PACKED)
@given(scale=st.floats(-20, 10), spread=st.floats(0, 12), seed=st.integers(0, 1000))
def test_a_positive_second_moment_never_decodes_to_zero(
    form: MomentFormat, scale: float, spread: float, seed: int
) -> None:
    torch.manual_seed(seed)
    v = 10.0 ** (scale + spread * torch.randn(8, 128).clamp(-2, 2)).double()
    v = v.float()
    decoded = round_trip_v(v, form)
    assert (decoded[v > 0] > 0).all()
    assert torch.isfinite(decoded).all()


@pytest.mark.parametrize("form", PACKED)
def test_zero_decodes_to_zero_beside_anything(form: MomentFormat) -> None:
    v = torch.zeros(2, 128)
    v[0, 5] = 1e-30
    decoded = round_trip_v(v, form)
    assert torch.equal(decoded > 0, v > 0)


@given(st.integers(0, 1000))
def test_the_largest_and_smallest_of_a_block_are_kept(seed: int) -> None:
    torch.manual_seed(seed)
    v = torch.exp(3 * torch.randn(4, 256))
    decoded = round_trip_v(v, "int8")
    torch.testing.assert_close(decoded.amax(-1), v.amax(-1), rtol=1e-5, atol=0)
    torch.testing.assert_close(decoded.amin(-1), v.amin(-1), rtol=1e-5, atol=0)


def test_an_8_bit_second_moment_is_within_one_code() -> None:
    v = torch.exp(2 * torch.randn(64, 256))
    octaves = (v.amax(-1) / v.amin(-1)).log2().amax()
    worst = (round_trip_v(v, "int8") / v).log2().abs().amax()
    assert worst <= 1.5 * octaves / 254  # the pseudo-logarithm bends by at most that


def test_a_small_decay_survives_on_average_where_nearest_would_lose_it() -> None:
    v = torch.full((4096, 256), 1.6)
    v[:, 0], v[:, 1] = 1e3, 1e-3  # the block's ends; 20 octaves, so a code is 5 %
    decayed = torch.cat([v[:, :2], v[:, 2:] * 0.999], dim=1)

    def octaves(value: Tensor) -> float:
        return value[:, 2:].view(torch.int32).double().mean().item() / 2**23

    wanted = octaves(decayed) - octaves(v)
    moved = octaves(round_trip_v(decayed, "int8")) - octaves(round_trip_v(v, "int8"))
    nearest = torch.full(v.shape, 0.5)
    assert moved == pytest.approx(wanted, rel=0.1)
    assert torch.equal(round_trip_v(decayed, "int8", nearest), round_trip_v(v, "int8", nearest))


@pytest.mark.parametrize("top", [127, 7])
def test_the_ratio_is_right_on_average_and_never_above_its_reach(top: int) -> None:
    share = torch.rand(2000, 256) * top**2
    codes = [moments.encode_ratio(share, torch.rand(share.shape), top) for _ in range(40)]
    decoded = torch.stack([moments.decode_ratio(code, torch.tensor(1.0)) for code in codes])
    assert decoded.amax() <= top**2
    step = 2 * share.sqrt().floor() + 1
    error = (decoded.mean(0) - share) / step
    assert error.mean().abs() < 4 * 0.5 / sqrt(share.numel() * 40)
    assert error.abs().amax() < 0.5


def test_the_top_ratio_is_exact() -> None:
    for noise in (0.0, 0.999):
        share = torch.tensor([[49.0]])
        assert moments.encode_ratio(share, torch.full((1, 1), noise), 7).item() == 7


@pytest.mark.parametrize(("beta1", "beta2"), [(0.9, 0.95), (0.9, 0.999), (0.0, 0.5)])
def test_no_gradients_can_exceed_the_reach(beta1: float, beta2: float) -> None:
    reach = moments.reach_of(beta1, beta2)
    # The worst case of Cauchy-Schwarz: gradients that grow by beta2 / beta1 each step.
    growth = beta2 / beta1 if beta1 else 10.0
    m = v = 0.0
    for step in range(100):
        g = growth ** (step - 100)
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        assert abs(m) <= reach * sqrt(v) * 1.0001
    assert abs(m) >= 0.99 * reach * sqrt(v)


def test_a_first_moment_that_outlives_the_second_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"beta1\^2 < beta2"):
        moments.reach_of(0.99, 0.9)


@pytest.mark.parametrize(
    ("shape", "form", "bytes_per_weight"),
    [
        ((2560, 9728), "int8", 2.03125),
        ((2560, 9728), "nvfp4", 1.09375),
        ((49152, 576), "int8", 2 + 8 / 192),
        ((64, 256), "fp32", 8),
        ((2560,), "int8", 8),  # small
        ((577, 1009), "int8", 8),  # rows that make no blocks
    ],
)
def test_the_promised_size_is_the_size(
    shape: tuple[int, ...], form: MomentFormat, bytes_per_weight: float
) -> None:
    state = new_moments(shape, form, torch.device("cpu"))
    real = sum(tensor.nbytes for tensor in state.values())
    assert real == moments.nbytes_for(shape, form)
    assert real / torch.Size(shape).numel() == pytest.approx(bytes_per_weight)


@given(st.integers(1, 3000), st.sampled_from(moments.FORMATS))
def test_blocks_lie_within_rows(columns: int, wanted: MomentFormat) -> None:
    shape = (64, columns)
    form = format_for(shape, wanted)
    block = block_for(shape, form)
    assert columns % block == 0
    assert form in (wanted, "fp32")
    if form != "fp32":
        assert block % 2 == 0


def test_halves_come_back_in_order() -> None:
    codes = torch.randint(16, (8, 128), dtype=torch.uint8)
    assert torch.equal(moments.unpack_halves(moments.pack_halves(codes)), codes)


def test_the_root_is_correctly_rounded() -> None:
    value = torch.rand(100_000) * 1e-3
    assert torch.equal(moments.root(value), value.double().sqrt().float())
