"""The size of a gradient against torch's own norm, and what clipping lets through."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fourge.core.errors import DivergedError
from fourge.nvfp4 import compiled, native
from fourge.optim.clip import (
    GROWTH,
    MEMORY,
    WIDTH,
    global_scale,
    require_finite_square,
    square_of,
    tensor_scale,
)

SHAPES = [(1,), (7,), (WIDTH - 1,), (WIDTH,), (WIDTH + 1,), (3, 5, 17), (63, WIDTH), (61, 263)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("size", [1e-15, 1.0, 1e12])
def test_the_square_is_that_of_torch_s_norm(
    shape: tuple[int, ...], dtype: torch.dtype, size: float
) -> None:
    torch.manual_seed(sum(shape))
    grad = (torch.randn(shape) * torch.exp(torch.randn(shape)) * size).to(dtype)
    expected = torch.linalg.vector_norm(grad.double()).item() ** 2
    assert square_of(grad) == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
def test_the_compiled_sum_is_the_plain_one_bit_for_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    grad = torch.randn(301, 263).bfloat16()
    monkeypatch.setattr(native, "can_use", lambda values: False)
    found = square_of(grad)
    assert found == pytest.approx(grad.double().square().sum().item(), rel=1e-6)
    monkeypatch.setattr(compiled, "_can_compile", lambda device: False)
    assert square_of(grad) == found


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_native_sum_of_a_row_is_the_plain_one_bit_for_bit(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    grad = (torch.randn(300, WIDTH) * torch.exp(4 * torch.randn(300, WIDTH))).to(dtype)
    of_rows, of_all = [square_of(row) for row in grad], square_of(grad)
    monkeypatch.setattr(native, "can_use", lambda values: False)
    assert of_rows == [square_of(row) for row in grad]
    assert of_all == pytest.approx(square_of(grad), rel=1e-14)


def test_the_native_sum_does_not_depend_on_the_threads() -> None:
    grad, before, found = torch.randn(1001, WIDTH), torch.get_num_threads(), set()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.add(square_of(grad))
    finally:
        torch.set_num_threads(before)
    assert len(found) == 1


def test_a_gradient_that_is_a_view_is_measured_as_what_it_shows() -> None:
    grad = torch.randn(40, 30)
    expected = grad.double().square().sum().item()
    assert square_of(grad.t()) == pytest.approx(expected, rel=1e-6)
    assert square_of(grad[:0]) == 0.0
    assert square_of(torch.zeros(300)) == 0.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf"), 1e20, -1e30])
@pytest.mark.parametrize("place", [0, WIDTH, 2 * WIDTH + 3])  # the last lies in no whole row
def test_one_bad_value_anywhere_is_refused(bad: float, place: int) -> None:
    """1e20 too: its square is no float32, and the second moment would be infinite for ever."""
    grad = torch.zeros(2 * WIDTH + 5)
    grad[place] = bad
    for changed, said in ((False, "no weight was changed"), (True, "the step is half done")):
        with pytest.raises(DivergedError, match=r"gradient of q_proj is not finite") as caught:
            require_finite_square("q_proj", square_of(grad), others_changed=changed)
        assert said in caught.value.why


@given(st.floats(0, 1e18), st.floats(1e-6, 1e6))
def test_no_norm_leaves_the_global_clip_larger_than_it(norm: float, clip: float) -> None:
    scale = global_scale(norm, clip)
    assert 0 < scale <= 1
    assert norm * scale <= clip * (1 + 1e-12)
    assert (scale == 1) == (norm <= clip)
    assert global_scale(norm, None) == 1.0


def test_the_first_norm_is_clipped_to_the_limit_and_remembered() -> None:
    state: dict[str, Any] = {}
    assert tensor_scale(10.0, 2.0, state) == pytest.approx(0.2)
    assert state["norm"] == pytest.approx(2.0)
    state = {}
    assert tensor_scale(0.5, 2.0, state) == 1.0
    assert state["norm"] == 0.5


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=30), st.floats(1e-3, 1e3))
def test_later_norms_may_exceed_the_running_mean_by_little(norms: list[float], clip: float) -> None:
    state: dict[str, Any] = {}
    past = None
    for norm in norms:
        clipped = tensor_scale(norm, clip, state) * norm
        allowed = clip if past is None else GROWTH * past
        assert clipped == pytest.approx(min(norm, allowed), rel=1e-9)
        past = clipped if past is None else MEMORY * past + (1 - MEMORY) * clipped
        assert state["norm"] == pytest.approx(past, rel=1e-9)


def test_a_spike_is_held_down_and_a_lasting_change_gets_through() -> None:
    state: dict[str, Any] = {}
    for _ in range(20):
        tensor_scale(1.0, 1e9, state)
    assert tensor_scale(1000.0, 1e9, state) * 1000.0 == pytest.approx(1.05)
    assert tensor_scale(1.0, 1e9, state) == 1.0
    steps = 0
    while tensor_scale(10.0, 1e9, state) < 1.0:
        steps += 1
    assert 500 < steps < 5000


def test_a_tensor_without_a_gradient_so_far_is_clipped_as_at_its_first_step() -> None:
    """Otherwise it would be held to 5 % above nothing, for ever."""
    state: dict[str, Any] = {}
    for _ in range(3):
        assert tensor_scale(0.0, 2.0, state) == 1.0
    assert tensor_scale(10.0, 2.0, state) == pytest.approx(0.2)
    assert tensor_scale(2.0, 2.0, state) == 1.0
    assert tensor_scale(0.0, 2.0, state) == 1.0
    assert global_scale(0.0, 1.0) == 1.0
