"""One tensor's update, cut in any way, in any shape, dense or packed."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fourge.core.errors import ConfigError
from fourge.nvfp4.master import adopt
from fourge.nvfp4.matrix import dequantize, quantize
from fourge.nvfp4.packed import PackedWeight
from fourge.optim.masters import MasterFormat
from fourge.optim.moments import FORMATS, MomentFormat
from fourge.optim.moved import Moved
from fourge.optim.part import whole
from fourge.optim.tensor import CHUNK, new_state, scratch_nbytes, update_tensor_
from tests.nvfp4.test_matrix import same
from tests.optim.test_kernel import numbers

ROWS, COLUMNS = 30, 256  # fewer blocks than are compiled
EXACT: dict[str, Any] = {"beta1": 0.0, "one_minus_beta1": 1.0, "beta2": 0.0, "one_minus_beta2": 1.0}


def packed() -> PackedWeight:
    torch.manual_seed(4)
    weight = torch.randn(ROWS, COLUMNS) * 0.02
    return PackedWeight(quantize(weight, tensor_scale=torch.tensor(2.0**-12)))


def updated(
    param: Tensor,
    *,
    moments: MomentFormat = "fp32",
    master: MasterFormat = "nvfp4",
    first: int = 1,
    steps: int = 1,
    chunk_rows: int | None = None,
    seed: int = 0,
    name: str = "w",
    **changes: float,
) -> tuple[dict[str, Any], Moved]:
    """The parameter after some steps with gradients of its own, and its state."""
    state, moved = new_state(whole(param), master, moments), Moved()
    generator = torch.Generator().manual_seed(9)
    for step in range(first, first + steps):
        state["step"] = step
        param.grad = torch.randn(param.shape, generator=generator).to(param.dtype)
        moved = Moved()
        with torch.no_grad():
            update_tensor_(name, whole(param), state, numbers(**changes), moments=moments,
                           seed=seed, chunk_rows=chunk_rows, moved=moved)  # fmt: skip
    return state, moved


def same_state(one: dict[str, Any], two: dict[str, Any]) -> bool:
    return one.keys() == two.keys() and all(
        torch.equal(value, two[key]) if isinstance(value, Tensor) else value == two[key]
        for key, value in one.items()
    )


@pytest.mark.parametrize("moments", FORMATS)
def test_row_chunks_change_no_bit_of_a_packed_weight(moments: MomentFormat) -> None:
    whole = packed()
    state, moved = updated(whole, moments=moments, steps=3)
    assert moved.share > 0.05
    for chunk_rows in (1, 7, 16, ROWS + 1):
        other = packed()
        its, also = updated(other, moments=moments, steps=3, chunk_rows=chunk_rows)
        assert same(other.matrix, whole.matrix), chunk_rows
        assert same_state(state, its)
        assert also.share == moved.share


@pytest.mark.parametrize("shape", [(600,), (24, 16, 20), (50, 33), (12, 2, 2, 5), (1, 48)])
@pytest.mark.parametrize("master", ["bf16", "bf16+8", "fp32"])
def test_row_chunks_change_no_bit_of_a_tensor_of_any_shape(
    master: MasterFormat, shape: tuple[int, ...]
) -> None:
    dtype = torch.float32 if master == "fp32" else torch.bfloat16
    torch.manual_seed(1)
    start = (torch.randn(shape) * 0.02).to(dtype)
    params = [nn.Parameter(start.clone()) for _ in range(3)]
    states = [
        updated(param, moments="int8", master=master, steps=3, chunk_rows=rows)[0]
        for param, rows in zip(params, (None, 1, 5), strict=True)
    ]
    assert not torch.equal(params[0], start)
    for param, state in zip(params[1:], states[1:], strict=True):
        assert torch.equal(param, params[0])
        assert same_state(state, states[0])


@pytest.mark.parametrize("shape", [(30,), (6, 5, 4), (8, 3)])
def test_an_exact_update_is_the_formula_in_float64(shape: tuple[int, ...]) -> None:
    param = nn.Parameter(torch.randn(shape))
    before = param.detach().double()
    updated(param, master="fp32", step_size=0.5, keep=0.75, grad_scale=0.5, root_scale=2.0,
            eps=0.125, chunk_rows=2)  # fmt: skip
    assert param.grad is not None
    grad = param.grad.double() * 0.5
    root = (grad.square() * 0.05).sqrt()
    expected = before * 0.75 - 0.5 * (grad * 0.1) / (root * 2.0 + 0.125)
    torch.testing.assert_close(param.detach().double(), expected, rtol=1e-5, atol=1e-6)


def test_by_default_a_chunk_holds_a_bounded_number_of_elements(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert CHUNK == 1 << 20
    seen = []

    def watch(weight_NK: Tensor, *rest: Any) -> None:
        seen.append(weight_NK.numel())

    monkeypatch.setattr("fourge.optim.tensor.update_", watch)
    monkeypatch.setattr("fourge.optim.tensor.CHUNK", 1000)
    updated(nn.Parameter(torch.randn(50, 128)), master="fp32")
    assert sum(seen) == 50 * 128
    assert max(seen) == 7 * 128
    seen.clear()
    updated(nn.Parameter(torch.randn(3, 2048)), master="fp32")
    assert seen == [2048] * 3  # at least a row


def test_a_packed_weight_moves_by_what_is_asked_for_on_average() -> None:
    """The update is lr times a sign: exactly, in the mean over elements and seeds."""
    total = torch.zeros(())
    for seed in range(40):
        weight = packed()
        before = dequantize(weight.matrix)
        _, moved = updated(weight, seed=seed, step_size=1e-4, **EXACT)
        assert weight.grad is not None
        total += -((dequantize(weight.matrix) - before) * weight.grad.sign()).mean()
    assert total.item() / 40 == pytest.approx(1e-4, rel=0.1)
    assert 0.01 < moved.share < 0.2  # one weight in some dozens moves, by a whole code


def test_a_step_of_nothing_moves_nothing_and_says_so() -> None:
    weight = packed()
    before = dequantize(weight.matrix)
    for step_size in (0.0, 1e-12):
        _, moved = updated(weight, step_size=step_size, **EXACT)
        assert torch.equal(dequantize(weight.matrix), before)
        assert moved.share == 0.0
        assert moved.tensors == 1


def test_the_share_is_that_of_the_sampled_rows_by_value() -> None:
    weight = packed()
    before = dequantize(weight.matrix)[:: -(-ROWS // 16)]
    _, moved = updated(weight, step_size=3e-4, **EXACT)
    after = dequantize(weight.matrix)[:: -(-ROWS // 16)]
    true = (before != after).float().mean().item()
    assert true > 0.02
    assert moved.share == pytest.approx(true, abs=0.05)


def test_name_step_and_seed_each_select_other_noise() -> None:
    def codes(**settings: Any) -> Tensor:
        weight = packed()
        updated(weight, **settings)
        return weight.matrix.packed_RC

    one = codes()
    assert torch.equal(one, codes())
    for settings in ({"name": "v"}, {"seed": 1}, {"first": 2}):
        assert not torch.equal(one, codes(**settings))


def test_the_residual_exists_only_where_it_has_a_meaning() -> None:
    bf16, fp32 = torch.zeros(4, 8).bfloat16(), torch.zeros(4, 8)
    assert new_state(whole(bf16), "bf16+8", "fp32")["residual"].shape == (4, 8)
    assert "residual" not in new_state(whole(fp32), "bf16+8", "fp32")
    assert "residual" not in new_state(whole(bf16), "bf16", "fp32")
    state = new_state(whole(packed()), "nvfp4", "int8")
    assert "residual" not in state
    held = sum(each.nbytes for each in state.values() if isinstance(each, Tensor))
    assert held < 2.1 * ROWS * COLUMNS


def test_a_gradient_of_any_layout_is_read_as_what_it_shows() -> None:
    one, two = (nn.Parameter(torch.ones(6, 10)) for _ in range(2))
    grad = torch.randn(10, 6)
    for param, given in ((one, grad.t()), (two, grad.t().contiguous())):
        param.grad = given
        state = new_state(whole(param), "fp32", "fp32") | {"step": 1}
        with torch.no_grad():
            update_tensor_("w", whole(param), state, numbers(), moments="fp32", seed=0,
                           chunk_rows=None, moved=Moved())  # fmt: skip
    assert torch.equal(one, two)


def test_a_weight_that_is_not_contiguous_is_refused() -> None:
    with pytest.raises(ConfigError, match="q_proj is not contiguous"):
        updated(nn.Parameter(torch.randn(6, 10).t()), master="fp32", name="q_proj")


def test_a_master_weight_is_told_that_it_was_updated() -> None:
    weight = adopt(nn.Parameter(torch.randn(6, 10)))
    version, told = weight.version, []

    class Keeper:
        def forget(self) -> None:
            told.append(True)

    keeper = Keeper()
    weight.on_update(keeper.forget)
    updated(weight, master="fp32")
    assert weight.version != version
    assert told == [True]


@pytest.mark.parametrize(
    ("rows", "chunk_rows", "values"), [(8, None, 8), (8, 3, 3), (8192, None, 4096)]
)
def test_the_scratch_is_that_of_one_chunk(rows: int, chunk_rows: int | None, values: int) -> None:
    weight = torch.empty(rows, COLUMNS, dtype=torch.bfloat16, device="meta")
    weight_of = {"fp32": 0, "int8": 0, "nvfp4": 2 * values * COLUMNS if rows > 8 else 0}
    for moments, nbytes in weight_of.items():
        assert scratch_nbytes(weight, moments, chunk_rows) == nbytes  # type: ignore[arg-type]
    assert scratch_nbytes(packed(), "int8", 2) == 11 * 2 * COLUMNS


def test_unpacked_moments_are_the_scratch_that_is_really_made() -> None:
    from fourge.memory.live import LiveBytes
    from fourge.optim.kernel import update_

    weight = torch.zeros(64, COLUMNS, dtype=torch.bfloat16)
    state = {k: v for k, v in new_state(whole(weight), "bf16", "nvfp4").items() if k != "step"}
    blocks = weight.view(-1, 128)
    with LiveBytes() as live:
        update_(blocks, None, blocks, state, "nvfp4", torch.zeros(10), torch.zeros(2),
                torch.zeros(()), run=lambda stage: lambda *args: None)  # fmt: skip
    assert live.lap().total == pytest.approx(scratch_nbytes(weight, "nvfp4", None), abs=64)
