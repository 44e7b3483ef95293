"""The fast path is the reference, bit for bit, on every shape, dtype and recipe."""

import logging

import pytest
import torch

from fourge.core import rng
from fourge.nvfp4 import compiled as module
from fourge.nvfp4.compiled import SMALL, compiled
from fourge.nvfp4.matrix import dequantize, fake_quantize, quantize
from fourge.nvfp4.recipe import RECIPES
from fourge.nvfp4.stochastic import quantize_stochastic
from tests.nvfp4.test_matrix import same

SHAPES = [(515, 272), (8209, 16), (1, 16 * SMALL + 48), (129, 1040)]


def weight_of(shape: tuple[int, int], dtype: torch.dtype, std: float) -> torch.Tensor:
    torch.manual_seed(shape[0])
    weight = torch.randn(shape) * std
    weight[0, :16] = 0
    weight[-1, -16:] *= 1e-7
    quarter = torch.round(weight[:, :16] / std * 4) / 4 * std  # ties
    weight[shape[0] // 2 :, :16] = quarter[shape[0] // 2 :]
    return weight.to(dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES.keys())
def test_compiled_kernels_equal_the_reference(recipe: object, dtype: torch.dtype) -> None:
    for shape in SHAPES:
        for std in (1e-6, 0.02, 1e4):
            weight = weight_of(shape, dtype, std)
            assert weight.numel() // 16 >= SMALL
            plain = quantize(weight, recipe=recipe, kernel="reference")  # type: ignore[arg-type]
            fast = quantize(weight, recipe=recipe)  # type: ignore[arg-type]
            assert same(plain, fast)
            dense = dequantize(plain, kernel="reference")
            assert torch.equal(dequantize(fast), dense)
            assert torch.equal(fake_quantize(weight, recipe=recipe), dense)  # type: ignore[arg-type]
            half = dequantize(plain, dtype=torch.bfloat16, kernel="reference")
            assert torch.equal(dequantize(fast, dtype=torch.bfloat16), half)


@pytest.mark.slow
def test_compiled_stochastic_rounding_equals_the_reference() -> None:
    for shape in SHAPES:
        weight = weight_of(shape, torch.float32, 0.02)
        key = rng.key(3, 5, "w")
        plain = quantize_stochastic(weight, key, kernel="reference")
        assert same(plain, quantize_stochastic(weight, key))


def test_thread_count_changes_no_bit() -> None:
    weight = weight_of((515, 272), torch.float32, 0.02)
    whole = quantize(weight)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert same(quantize(weight), whole)
    finally:
        torch.set_num_threads(threads)


def test_chunks_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = weight_of((515, 272), torch.float32, 0.02)
    whole = quantize(weight, kernel="reference")
    noise = quantize_stochastic(weight, rng.key(1, 1, "w"), kernel="reference")
    monkeypatch.setattr("fourge.nvfp4.matrix.CHUNK", 1001)
    assert same(quantize(weight, kernel="reference"), whole)
    assert same(quantize_stochastic(weight, rng.key(1, 1, "w"), kernel="reference"), noise)
    assert torch.equal(fake_quantize(weight, kernel="reference"), dequantize(whole))


def test_without_a_compiler_the_reference_runs_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "has_cpp_compiler", lambda: False)
    module._can_compile.cache_clear()
    calls = []

    def stage(x: torch.Tensor) -> torch.Tensor:
        calls.append(torch.compiler.is_compiling())
        return x + 1

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert compiled(stage)(torch.zeros(SMALL)).sum() == SMALL
    module._can_compile.cache_clear()
    assert calls == [False, False, False]
    assert len(caplog.records) == 1
    assert "uncompiled" in caplog.text
