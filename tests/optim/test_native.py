"""The native update against the plain one, and what it is for."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fourge.core import rng
from fourge.nvfp4.compiled import has_cpp_compiler
from fourge.optim import kernel, moments, native
from fourge.optim.adamw import AdamW
from fourge.optim.moments import State, new_moments
from tests.optim.test_kernel import CPU, numbers, plain

needs_kernels = pytest.mark.skipif(
    not torch.backends.cpu.get_cpu_capability().startswith("AVX") or not has_cpp_compiler(),
    reason="needs AVX2 and a compiler",
)
BF16 = torch.bfloat16


def begun(shape: tuple[int, ...]) -> tuple[Tensor, State]:
    torch.manual_seed(5)
    block = moments.block_for(shape, "int8")
    weight_NK = (torch.randn(shape) * 0.02).bfloat16().view(-1, block)
    return weight_NK, new_moments(shape, "int8", CPU)


def grads(shape: torch.Size, dtype: torch.dtype, steps: int) -> list[Tensor]:
    """Over many decades, with zeros, with whole blocks of them, and with values that vanish."""
    torch.manual_seed(7)
    made = []
    for _ in range(steps):
        grad_NK = torch.randn(shape) * torch.exp(4 * torch.randn(shape))
        grad_NK[torch.rand(shape) < 0.1] = 0
        grad_NK[torch.rand(shape) < 0.05] = 1e-30
        grad_NK[::7] = 0
        made.append(grad_NK.to(dtype))
    return made


@needs_kernels
@pytest.mark.parametrize("grad_dtype", [BF16, torch.float32])
@pytest.mark.parametrize("shape", [(160, 256), (129, 48), (4608,), (100, 90), (1024, 512)])
@pytest.mark.parametrize("first", [0, 4096, (1 << 32) + 256])
def test_the_native_update_is_the_plain_one_bit_for_bit(
    shape: tuple[int, ...], grad_dtype: torch.dtype, first: int
) -> None:
    changed = numbers(keep=0.999, root_scale=1.7, grad_scale=0.3)
    (one_NK, one), (two_NK, two) = begun(shape), begun(shape)
    for step, grad_NK in enumerate(grads(one_NK.shape, grad_dtype, 6)):
        words = rng.key(0, step, "w").words(CPU)
        assert native.takes(one_NK, None, grad_NK, "int8")
        native.update_(one_NK, grad_NK, one, changed, words, first)
        kernel.update_(
            two_NK, None, grad_NK, two, "int8", changed, words, torch.tensor(first), plain  # type: ignore[arg-type]
        )  # fmt: skip
        assert torch.equal(one_NK, two_NK)
        for name in two:
            assert torch.equal(one[name], two[name]), name


@needs_kernels
def test_the_number_of_threads_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(native, "threads_for", lambda values, threads=threads: threads)
        weight_NK, state = begun((1000, 256))
        for grad_NK in grads(weight_NK.shape, BF16, 2):
            words = rng.key(0, 1, "w").words(CPU)
            native.update_(weight_NK, grad_NK, state, numbers(), words, 0)
        found.append([weight_NK, *state.values()])
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


@needs_kernels
def test_a_gradient_that_does_not_lie_side_by_side_is_read_as_what_it_shows() -> None:
    (one_NK, one), (two_NK, two) = begun((64, 256)), begun((64, 256))
    wide = torch.randn(64, 512).bfloat16()
    words = rng.key(0, 1, "w").words(CPU)
    native.update_(one_NK, wide[:, ::2], one, numbers(), words, 0)
    native.update_(two_NK, wide[:, ::2].clone(), two, numbers(), words, 0)
    assert torch.equal(one_NK, two_NK)


@needs_kernels
@pytest.mark.parametrize(
    "other",
    [
        {"weight_NK": torch.zeros(4, 256)},
        {"weight_NK": torch.zeros(4, 256, dtype=BF16, device="meta")},
        {"residual": torch.zeros(4, 256, dtype=torch.int8)},
        {"grad_NK": torch.zeros(4, 256, dtype=torch.float16)},
        {"form": "nvfp4"},
        {"form": "fp32"},
    ],
)
def test_other_formats_are_for_the_compiled_update(other: dict[str, Any]) -> None:
    what = {"weight_NK": torch.zeros(4, 256, dtype=BF16), "residual": None,
            "grad_NK": torch.zeros(4, 256, dtype=BF16), "form": "int8"}  # fmt: skip
    assert native.takes(**what)  # type: ignore[arg-type]
    assert not native.takes(**{**what, **other})


@needs_kernels
@pytest.mark.parametrize(("moments", "used"), [("int8", 1), ("nvfp4", 0)])
def test_the_optimizer_updates_a_whole_tensor_in_one_call(
    moments: Any, used: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    update_ = native.update_

    def counted(weight_NK: Tensor, *rest: Any) -> None:
        calls.append(weight_NK.numel())
        update_(weight_NK, *rest)

    monkeypatch.setattr(native, "update_", counted)
    weight = nn.Parameter(torch.randn(96, 256).bfloat16())
    optimizer = AdamW([("w", weight)], lr=1e-2, moments=moments, chunk_rows=16)
    before, weight.grad = weight.detach().clone(), torch.randn(96, 256).bfloat16()
    optimizer.step()
    assert calls == [96 * 256] * used
    assert not torch.equal(weight, before)
