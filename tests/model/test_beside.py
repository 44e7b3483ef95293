"""Rows see what they begin with and their own, whichever way it is computed."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fourge.model import beside
from fourge.model.beside import Beside

ROWS, COLUMNS, SHARED = 5, 9, 6


def module() -> nn.Module:
    made = nn.Module()
    made.layer_idx = 1  # type: ignore[assignment]
    return made


def some(
    key_heads: int, group: int, queries: int, size: int, seed: int, dtype: torch.dtype
) -> tuple[Beside, Tensor, Tensor, Tensor]:
    """Rows that begin with all that is shared, or with nothing, somewhere in the cache."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return (2 * torch.randn(*shape, generator=draw)).to(dtype)

    begins_B = SHARED * torch.randint(0, 2, (ROWS,), generator=draw)
    starts_B = torch.randint(0, COLUMNS - queries + 1, (ROWS,), generator=draw)
    other = (normal(key_heads, SHARED, size), normal(key_heads, SHARED, size))
    shared = [other, (normal(key_heads, SHARED, size), normal(key_heads, SHARED, size))]
    query = normal(ROWS, queries, key_heads * group, size).transpose(1, 2)
    room = normal(ROWS, key_heads, COLUMNS + 3, size), normal(ROWS, key_heads, COLUMNS + 2, size)
    key, value = (each[:, :, :COLUMNS] for each in room)
    return Beside(shared, begins_B, starts_B), query, key, value


def by_hand(
    sight: Beside, query: Tensor, key: Tensor, value: Tensor, scale: float, window: int
) -> Tensor:
    """Row by row and head by head, in float64."""
    rows, heads, queries, size = query.shape
    group = heads // key.shape[1]
    out = torch.zeros(rows, queries, heads, size, dtype=torch.float64)
    for row in range(rows):
        begins, start = int(sight.begins_B[row]), int(sight.starts_B[row])
        for head in range(heads):
            seen, told = (
                torch.cat([one[head // group, :begins], many[row, head // group, start:]]).double()
                for one, many in zip(sight.shared[1], (key, value), strict=True)
            )
            for q in range(queries):
                end = len(seen) - queries + 1 + q
                first = max(0, end - window)
                score_T = seen[first:end] @ query[row, head, q].double() * scale
                out[row, q, head] = score_T.softmax(0) @ told[first:end]
    return out


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(1, 9),
    st.sampled_from([1, 1, 2, 4]),
    st.sampled_from([8, 16, 64, 80, 128]),
    st.sampled_from([None, 1, 3, 8, 100]),
    st.sampled_from([torch.float32, torch.bfloat16]),
    st.integers(0, 99),
    st.booleans(),
)
def test_it_is_the_attention_of_each_row_alone(
    key_heads: int, group: int, queries: int, size: int, window: int | None,
    dtype: torch.dtype, seed: int, by_kernel: bool,
) -> None:  # fmt: skip
    sight, query, key, value = some(key_heads, group, queries, size, seed, dtype)
    with torch.set_grad_enabled(not by_kernel):  # with gradients it is for sdpa
        out = sight.attended(
            module(), query, key, value, scaling=0.2, sliding_window=window, other=1
        )
    wanted = by_hand(sight, query, key, value, 0.2, window or 1000)
    assert out.shape == wanted.shape
    assert out.dtype == dtype
    off = (out.double() - wanted).abs()
    if dtype == torch.float32:
        assert off.max() < 2e-5
    elif by_kernel and size % 16 == 0:  # summed in float32, and rounded once to the nearest
        assert (off <= 2**-8 * wanted.abs() + 2e-5).all()
    else:
        assert off.max() < 0.05


def test_a_kernel_is_taken_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []
    kernel = beside._by_kernel
    if beside._kernels() is None:
        pytest.skip("this processor has none")

    def watched(*given: Any) -> Tensor:
        taken.append("kernel")
        return kernel(*given)

    monkeypatch.setattr(beside, "_by_kernel", watched)
    sight, query, key, value = some(2, 3, 1, 16, 0, torch.float32)
    scattered = key.transpose(1, 2).contiguous().transpose(1, 2)
    with torch.no_grad():
        sight.attended(module(), query, key, value)
        assert taken == ["kernel"]
        sight.attended(module(), query, scattered, value)
        doubles, *of_doubles = some(2, 3, 1, 16, 0, torch.float64)
        doubles.attended(module(), *of_doubles)
        small, *of_small = some(2, 3, 1, 8, 0, torch.float32)
        small.attended(module(), *of_small)
    sight.attended(module(), query, key, value)  # with gradients
    assert taken == ["kernel"]


def test_a_row_has_the_same_numbers_whatever_stands_beside_it() -> None:
    sight, query, key, value = some(2, 3, 1, 64, 0, torch.float32)
    with torch.no_grad():
        together = sight.attended(module(), query, key, value)
        for row in range(ROWS):
            start = int(sight.starts_B[row])
            alone = Beside(sight.shared, sight.begins_B[[row]], torch.tensor([0]))
            own = (query[[row]], key[[row], :, start:], value[[row], :, start:])
            assert torch.equal(alone.attended(module(), *own), together[[row]])


def test_what_is_not_a_number_is_not_lost() -> None:
    sight, query, key, value = some(2, 3, 1, 64, 0, torch.float32)
    key[2, 1, COLUMNS - 2, 5] = float("nan")
    sight.starts_B[2] = 0
    with torch.no_grad():
        out = sight.attended(module(), query, key, value)
    broken = ~out.isfinite().all(-1)
    assert broken[2, 0, 3:].all()
    assert not broken[2, 0, :3].any()
    assert not broken[[0, 1, 3, 4]].any()


def test_scores_far_apart_and_a_scale_of_its_own() -> None:
    sight, query, key, value = some(1, 1, 1, 16, 3, torch.float32)
    with torch.no_grad():
        out = sight.attended(module(), 40 * query, key, value)
    assert out.isfinite().all()
    wanted = by_hand(sight, 40 * query, key, value, 0.25, 1000)
    assert (out.double() - wanted).abs().max() < 1e-4


def test_nothing_shared_and_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    sight, query, key, value = some(2, 2, 1, 32, 5, torch.float32)
    alone = Beside([], torch.zeros_like(sight.begins_B), sight.starts_B)
    with torch.no_grad():
        one = alone.attended(module(), query, key, value)
        monkeypatch.setattr(beside, "threads_for", lambda values: 4)
        assert torch.equal(alone.attended(module(), query, key, value), one)
    none = (sight.shared[0][0][:, :0],) * 2
    as_if = Beside([none, none], alone.begins_B, alone.starts_B)
    assert (one.double() - by_hand(as_if, query, key, value, 32**-0.5, 1000)).abs().max() < 4e-6
