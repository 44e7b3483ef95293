"""A run sees the runs before it and itself, whichever way it is computed."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fourge.model import runs as way
from fourge.model.runs import Run, Runs
from fourge.train.joined import _causal

Tensors = tuple[Tensor, Tensor, Tensor]


def tree(counts: list[int], seed: int) -> Runs:
    """Runs of so many tokens, each behind an earlier one or a root of its own."""
    draw = torch.Generator().manual_seed(seed)
    runs: list[Run] = []
    for number, count in enumerate(counts):
        parent = int(torch.randint(-1, number, (), generator=draw)) if number else -1
        before = () if parent < 0 else (*runs[parent].before, parent)
        runs.append(Run(before, _causal(count, sum(counts[n] for n in before), torch.float32)))
    return Runs(tuple(runs))


def some(counts: list[int], key_heads: int, group: int, size: int, dtype: torch.dtype) -> Tensors:
    """Queries, keys and values as a model has them: heads between a token's values and the next."""
    draw = torch.Generator().manual_seed(sum(counts))
    shapes = [(1, sum(counts), heads, size) for heads in (key_heads * group, key_heads, key_heads)]
    made = [
        (1.5 * torch.randn(shape, generator=draw)).to(dtype).transpose(1, 2) for shape in shapes
    ]
    query, key, value = (each.requires_grad_() for each in made)
    return query, key, value


def by_hand(runs: Runs, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """With one mask over everything."""
    spans, end = [], 0
    for run in runs.runs:
        spans.append((end, end + len(run.mask_QT)))
        end += len(run.mask_QT)
    may_SS = torch.zeros(end, end, dtype=torch.bool)
    for (first, last), run in zip(spans, runs.runs, strict=True):
        may_SS[first:last, first:last] = torch.ones(last - first, last - first).tril().bool()
        for number in run.before:
            may_SS[first:last, spans[number][0] : spans[number][1]] = True
    group = query.shape[1] // key.shape[1]
    seen, told = (each.repeat_interleave(group, dim=1) for each in (key, value))
    scores = (query @ seen.transpose(2, 3) * scale).masked_fill(~may_SS, -torch.inf)
    return (scores.softmax(-1) @ told).transpose(1, 2)


def outcome(out: Tensor, tensors: Tensors) -> tuple[Tensor, ...]:
    """What comes out, and what goes back."""
    given = torch.linspace(-1, 1, out.numel()).bfloat16().view_as(out)
    return (out.detach(), *torch.autograd.grad(out, tensors, given.to(out.dtype)))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 21), min_size=1, max_size=7),
    st.integers(1, 3),
    st.integers(1, 4),
    st.sampled_from([8, 16, 48, 64, 128]),
    st.sampled_from([torch.float32, torch.bfloat16]),
    st.integers(0, 99),
)
def test_it_is_the_attention_under_one_mask(
    counts: list[int], key_heads: int, group: int, size: int, dtype: torch.dtype, seed: int
) -> None:
    runs, tensors = tree(counts, seed), some(counts, key_heads, group, size, dtype)
    found = outcome(runs.attended(nn.Module(), *tensors, scaling=0.2, other=1), tensors)
    query, key, value = (each.detach().double().requires_grad_() for each in tensors)
    wanted = outcome(by_hand(runs, query, key, value, 0.2), (query, key, value))
    for one, exact in zip(found, wanted, strict=True):
        assert one.shape == exact.shape
        assert one.dtype == dtype
        off = (one.double() - exact).abs()
        near = 1e-6 if dtype == torch.float32 else 2**-8
        if size % 16:  # for sdpa, which rounds keys' shares one by one
            near *= 4
        assert (off <= near * exact.abs() + 2e-5).all()


def test_the_kernel_and_sdpa_agree() -> None:
    counts = [31, 9, 17, 5, 12]
    runs, tensors = tree(counts, 3), some(counts, 3, 3, 64, torch.float32)
    kernel = outcome(runs.attended(nn.Module(), *tensors), tensors)
    sdpa = outcome(way._by_sdpa(runs.runs, *tensors, None), tensors)
    for one, other in zip(kernel, sdpa, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which way each call takes."""
    if way._kernels() is None:
        pytest.skip("this processor has none")
    found: list[str] = []
    call = way._call

    def watched(name: str, *given: Any) -> None:
        found.append(name)
        call(name, *given)

    monkeypatch.setattr(way, "_call", watched)
    return found


def test_a_kernel_is_taken_where_there_is_one(taken: list[str]) -> None:
    runs = tree([4, 3], 0)
    tensors = some([4, 3], 2, 2, 16, torch.float32)
    outcome(runs.attended(nn.Module(), *tensors), tensors)
    assert taken == ["forward", "backward"]
    for size, dtype in ((8, torch.float32), (16, torch.float64)):
        runs.attended(nn.Module(), *some([4, 3], 2, 2, size, dtype))
    query, key, value = some([4, 3], 2, 2, 16, torch.float32)
    scattered = key.transpose(2, 3).contiguous().transpose(2, 3)
    runs.attended(nn.Module(), query, scattered, value)
    assert taken == ["forward", "backward"]


def test_sums_do_not_depend_on_the_threads() -> None:
    counts, threads = [31, 9, 17, 5, 12], torch.get_num_threads()
    runs, tensors = tree(counts, 5), some(counts, 3, 3, 64, torch.float32)
    try:
        found = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(outcome(runs.attended(nn.Module(), *tensors), tensors))
    finally:
        torch.set_num_threads(threads)
    for other in found[1:]:
        assert all(torch.equal(one, two) for one, two in zip(found[0], other, strict=True))


def test_what_is_no_number_is_seen_by_those_behind_it_alone() -> None:
    counts = [4, 3, 3]
    branch = Run((0,), _causal(3, 4, torch.float32))
    runs = Runs((Run((), _causal(4, 0, torch.float32)), branch, branch))
    query, key, value = (each.detach().clone() for each in some(counts, 1, 2, 16, torch.float32))
    key[0, 0, 5] = torch.nan  # the second of run 1
    out_SHD = runs.attended(nn.Module(), query, key, value)[0]
    assert out_SHD.isnan().flatten(1).any(1).nonzero().flatten().tolist() == [5, 6]
