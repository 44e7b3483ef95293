"""The update, compiled and not, in every pair of formats."""

import functools

import pytest
import torch

from fourge.core import rng
from fourge.nvfp4.compiled import compiled
from fourge.optim import kernel, moments
from fourge.optim.moments import FORMATS, MomentFormat, new_moments

CPU = torch.device("cpu")
MASTERS = ("bf16", "bf16+8", "fp32")


def plain(stage: object) -> object:
    return stage


def numbers(**changed: float) -> torch.Tensor:
    values = {
        "beta1": 0.9, "one_minus_beta1": 0.1, "beta2": 0.95, "one_minus_beta2": 0.05,
        "step_size": 1e-3, "keep": 1.0, "root_scale": 1.0, "eps": 1e-8,
        "reach": moments.reach_of(0.9, 0.95), "grad_scale": 1.0,
    }  # fmt: skip
    return kernel.Numbers(**{**values, **changed}).tensor(CPU)


def updated(master: str, form: MomentFormat, run: object, first: int = 0) -> list[torch.Tensor]:
    torch.manual_seed(3)
    shape = (160, 256)
    dtype = torch.float32 if master == "fp32" else torch.bfloat16
    block = moments.block_for(shape, form)
    weight = (torch.randn(shape) * 0.02).to(dtype).view(-1, block)
    residual = torch.zeros(weight.shape, dtype=torch.int8) if master == "bf16+8" else None
    state = new_moments(shape, form, CPU)
    for step in range(1, 5):
        grad = (torch.randn(weight.shape) * torch.exp(2 * torch.randn(weight.shape))).to(dtype)
        words = rng.key(0, step, "w").words(CPU)
        kernel.update_(
            weight, residual, grad, state, form, numbers(), words, torch.tensor(first), run  # type: ignore[arg-type]
        )  # fmt: skip
    return [weight, *([] if residual is None else [residual]), *state.values()]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("master", MASTERS)
def test_the_compiled_update_is_the_plain_one_bit_for_bit(master: str, form: MomentFormat) -> None:
    fast = updated(master, form, functools.partial(compiled, small=1))
    slow = updated(master, form, plain)
    for one, two in zip(fast, slow, strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("form", ["int8", "nvfp4"])
def test_noise_depends_on_the_place_in_the_tensor(form: MomentFormat) -> None:
    here, there = updated("bf16", form, plain), updated("bf16", form, plain, first=1 << 20)
    assert not torch.equal(here[0], there[0])


@pytest.mark.parametrize("form", ["int8", "nvfp4"])
def test_the_largest_ratio_after_a_round_trip_is_at_most_a_tenth_larger(form: MomentFormat) -> None:
    """Heavy-tailed gradients: lognormal scales over seven decades within each block."""
    torch.manual_seed(0)
    shape = (256, 256)
    block = moments.block_for(shape, form)
    scale = torch.exp(2.5 * torch.randn(shape)).view(-1, block) * 1e-4
    state, exact_m, exact_v = new_moments(shape, form, CPU), torch.zeros(()), torch.zeros(())
    weight = torch.zeros(scale.shape)
    for step in range(1, 30):
        grad = torch.randn(scale.shape) * scale
        before = _decoded(state, form)
        words = rng.key(0, step, "w").words(CPU)
        n = numbers(step_size=0.0)
        kernel.update_(weight, None, grad, state, form, n, words, torch.tensor(0), plain)  # type: ignore[arg-type]
        # What the step computed from the state it found, before packing it again.
        exact_m = before[0] * 0.9 + grad * 0.1
        exact_v = before[1] * 0.95 + grad * grad * 0.05
        m, v = _decoded(state, form)
        true = (exact_m.abs() / exact_v.sqrt()).amax()
        assert (m.abs() / v.sqrt()).amax() <= 1.1 * true
        assert (v > 0).all()


def _decoded(state: dict[str, torch.Tensor], form: MomentFormat) -> tuple[torch.Tensor, ...]:
    n = kernel.Numbers(*numbers().tolist())
    parts = dict(state)
    if form == "nvfp4":
        parts |= {each: moments.unpack_halves(state[each]) for each in ("m", "v")}
    return kernel._READ[form](tuple(parts.values()), n)


@pytest.mark.parametrize("form", ["int8", "nvfp4"])
def test_a_weight_without_gradient_stays_where_it_is(form: MomentFormat) -> None:
    shape = (128, 256)
    block = moments.block_for(shape, form)
    weight = torch.randn(shape).bfloat16().view(-1, block)
    before, grad = weight.clone(), torch.zeros(weight.shape, dtype=torch.bfloat16)
    grad[0, 0] = 1.0
    state = new_moments(shape, form, CPU)
    for step in range(5):
        words = rng.key(0, step, "w").words(CPU)
        kernel.update_(weight, None, grad, state, form, numbers(), words, torch.tensor(0), plain)  # type: ignore[arg-type]
    differs = weight != before
    assert differs.sum() <= 1


@pytest.mark.parametrize(("form", "bound"), [("int8", 0.05), ("nvfp4", 1.0)])
def test_a_long_memory_does_not_drift(form: MomentFormat, bound: float) -> None:
    """Rounding noise with a mean of 1/2 less 1/512 shrank v to 0.4 of its size in 1000 steps.

    With 4 bits a code is an octave or more, and v, right in the logarithm, comes out larger.
    """
    torch.manual_seed(0)
    shape = (32, 256)
    block = moments.block_for(shape, form)
    scale = torch.exp(2 * torch.randn(shape)).view(-1, block) * 1e-3
    state, weight = new_moments(shape, form, CPU), torch.zeros(scale.shape)
    exact = torch.zeros(scale.shape)
    n = numbers(beta2=0.999, one_minus_beta2=0.001, reach=moments.reach_of(0.9, 0.999))
    for step in range(1, 1001):
        grad = torch.randn(scale.shape) * scale
        words = rng.key(0, step, "w").words(CPU)
        kernel.update_(weight, None, grad, state, form, n, words, torch.tensor(0), plain)  # type: ignore[arg-type]
        exact = exact * 0.999 + grad * grad * 0.001
    ratio = (_decoded(state, form)[1] / exact).log().median().exp()
    assert -0.1 < ratio - 1 < bound
