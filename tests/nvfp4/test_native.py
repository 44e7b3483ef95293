"""Kernels that read codes: the weights of the reference, and float32's own error in the sums."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from fourge.core.errors import FormatError
from fourge.nvfp4 import built, gemm, native
from fourge.nvfp4.compiled import has_cpp_compiler
from fourge.nvfp4.gemm import dense, dequant_linear
from fourge.nvfp4.linear import Nvfp4Linear
from fourge.nvfp4.matrix import Nvfp4Matrix, dequantize, quantize

CODES = quantize(torch.ones(4, 32))
needs_kernels = pytest.mark.skipif(
    not torch.backends.cpu.get_cpu_capability().startswith("AVX") or not has_cpp_compiler(),
    reason="needs AVX2 and a compiler",
)


@pytest.fixture(autouse=True)
def no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def random_matrix(rows: int, cols: int, seed: int = 0) -> Nvfp4Matrix:
    """Every code, every finite scale of either sign, and a tensor scale that rounds."""
    draw = torch.Generator().manual_seed(seed)
    packed = torch.randint(0, 256, (rows, cols // 2), dtype=torch.uint8, generator=draw)
    scale = torch.randint(0, 256, (rows, cols // 16), dtype=torch.uint8, generator=draw)
    scale[(scale & 127) == 127] = 1
    return Nvfp4Matrix(packed, scale.view(torch.float8_e4m3fn), torch.tensor(0.0317))


def within_bound(y: Tensor, x: Tensor, weight_RC: Tensor) -> bool:
    """As the module promises: relative to the sum of magnitudes."""
    exact = x.double() @ weight_RC.double().T
    magnitude = x.double().abs() @ weight_RC.double().abs().T
    bound = 2.0**-24 * (x.shape[1] / 16 + 5) * 1.01 * magnitude + 1e-38
    return bool(((y.double() - exact).abs() <= bound).all())


@needs_kernels
@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 9), st.integers(-120, 100), st.booleans(), st.integers())
def test_codes_are_those_of_the_definition_bit_for_bit(
    rows: int, blocks: int, power: int, is_bf16: bool, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed % 2**31)
    spread = torch.randint(-12, 3, (rows, blocks, 1), generator=draw)
    weight_RC = torch.randn(rows, blocks, 16, generator=draw).ldexp(spread).view(rows, -1)
    weight_RC = weight_RC.mul_(2.0**power).masked_fill_(torch.rand(rows, 16 * blocks) < 0.1, -0.0)
    weight_RC = weight_RC.bfloat16() if is_bf16 else weight_RC
    for scale in (None, torch.tensor(2.0 ** max(power - 8, -99)), torch.tensor(0.0371)):
        expected = quantize(weight_RC, tensor_scale=scale, kernel="reference")
        found = quantize(weight_RC, tensor_scale=scale)
        assert torch.equal(found.packed_RC, expected.packed_RC)
        assert torch.equal(found.block_scale_RB.view(torch.uint8),
                           expected.block_scale_RB.view(torch.uint8))  # fmt: skip
        assert torch.equal(found.tensor_scale, expected.tensor_scale)


@needs_kernels
def test_every_e4m3_scale_and_every_tie_is_rounded_as_torch_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scales = torch.arange(1, 127, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    between = (scales[1:] + scales[:-1]) / 2  # ties of E4M3
    largest = 6 * torch.cat([scales, between, between.nextafter(scales[1:])])
    levels = torch.tensor([0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6, 6]) / 6
    weight_RC = largest[:, None] * levels
    one = torch.tensor(1.0)
    expected = quantize(weight_RC, tensor_scale=one, kernel="reference")
    with monkeypatch.context() as patch:
        patch.delattr("fourge.nvfp4.matrix.as_blocks")  # the way of the stages
        found = quantize(weight_RC, tensor_scale=one)
    assert torch.equal(found.packed_RC, expected.packed_RC)
    assert torch.equal(found.block_scale_RB.float(), expected.block_scale_RB.float())


@needs_kernels
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_value_that_is_not_finite_is_refused(value: float, dtype: torch.dtype) -> None:
    weight_RC = torch.ones(300, 32, dtype=dtype)
    weight_RC[217, 21] = value
    with pytest.raises(FormatError, match="not finite"):
        quantize(weight_RC, tensor_scale=torch.tensor(1.0))


@needs_kernels
@settings(max_examples=40, deadline=None)
@given(st.integers(1, 140), st.integers(1, 20), st.integers(1, 150), st.integers(0, 99))
def test_a_product_is_that_of_the_decoded_weight_within_the_bound(
    rows: int, blocks: int, count: int, seed: int
) -> None:
    matrix = random_matrix(rows, 16 * blocks, seed)
    x = torch.randn(count, 16 * blocks, generator=torch.Generator().manual_seed(seed))
    assert within_bound(native.times_codes(x, matrix, None), x, dequantize(matrix))
    bf16_RC = torch.randn(rows, 16 * blocks).bfloat16()
    product = native.times_dense(x, bf16_RC, None)
    assert within_bound(product, x, bf16_RC)
    assert torch.equal(native.times_dense(x, bf16_RC.float(), None), product)


@needs_kernels
@pytest.mark.parametrize("shape", [(1, 16), (193, 272), (576, 1536), (1000, 48)])
def test_decoding_is_the_reference_bit_for_bit(shape: tuple[int, int]) -> None:
    matrix = random_matrix(*shape)
    out = native.decode_(matrix, torch.empty(shape))
    reference = dequantize(matrix, kernel="reference")
    assert torch.equal(out.view(torch.int32), reference.view(torch.int32))  # the sign of zeros too
    assert torch.equal(dense(matrix, torch.float32), reference)
    rounded = reference.bfloat16()
    narrow = native.decode_(matrix, torch.empty(shape, dtype=torch.bfloat16))
    assert torch.equal(narrow.view(torch.int16), rounded.view(torch.int16))
    assert torch.equal(dense(matrix, torch.bfloat16), rounded)


@needs_kernels
def test_every_code_and_every_scale_decodes_as_the_reference_does() -> None:
    packed = torch.arange(256, dtype=torch.uint8).view(32, 8).repeat(256, 1)
    scale = torch.arange(256, dtype=torch.uint8).repeat_interleave(32).view(-1, 1)
    matrix = Nvfp4Matrix(packed, scale.view(torch.float8_e4m3fn), torch.tensor(0.25))
    out = native.decode_(matrix, torch.empty(matrix.shape))
    reference = dequantize(matrix, kernel="reference")
    assert torch.equal(out.nan_to_num(7.0), reference.nan_to_num(7.0))
    assert torch.equal(out.isnan(), reference.isnan())
    narrow = native.decode_(matrix, torch.empty(matrix.shape, dtype=torch.bfloat16))
    assert torch.equal(narrow.nan_to_num(7.0), reference.bfloat16().nan_to_num(7.0))
    assert torch.equal(narrow.isnan(), reference.isnan())


@needs_kernels
def test_neither_threads_nor_other_rows_change_a_bit() -> None:
    matrix, bf16_RC = random_matrix(777, 272), torch.randn(777, 272).bfloat16()
    x = torch.randn(87, 272)
    together = native.times_codes(x, matrix, None), native.times_dense(x, bf16_RC, None)
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            assert torch.equal(native.times_codes(x, matrix, None), together[0])
            assert torch.equal(native.times_dense(x, bf16_RC, None), together[1])
    finally:
        torch.set_num_threads(threads)
    for m in range(87):
        alone = x[m : m + 1]
        assert torch.equal(native.times_codes(alone, matrix, None)[0], together[0][m])
        assert torch.equal(native.times_dense(alone, bf16_RC, None)[0], together[1][m])


@needs_kernels
def test_a_row_that_is_not_finite_leaves_the_others_alone() -> None:
    matrix, x = random_matrix(50, 272), torch.randn(70, 272)
    before = native.times_codes(x, matrix, None)
    x[33] = float("nan")
    after = native.times_codes(x, matrix, None)
    assert after[33].isnan().all()
    others = torch.arange(70) != 33
    assert torch.equal(after[others], before[others])


@needs_kernels
def test_wider_registers_change_no_bit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    matrix, bf16_RC, x = (
        random_matrix(131, 272),
        torch.randn(131, 272).bfloat16(),
        torch.randn(87, 272),
    )

    def products() -> list[Tensor]:
        native._kernels.cache_clear()
        out = native.decode_(matrix, torch.empty(131, 272))
        narrow = native.decode_(matrix, torch.empty(131, 272, dtype=torch.bfloat16))
        few = [native.times_codes(x[:count], matrix, None) for count in range(1, 88)]
        return [out, narrow, native.times_dense(x, bf16_RC, None), *few]

    as_it_is = products()
    with monkeypatch.context() as narrow:
        narrow.setenv("XDG_CACHE_HOME", str(tmp_path))
        narrow.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
        with_avx2 = products()
        assert len(list(tmp_path.rglob("nvfp4-*.so"))) == 1
    native._kernels.cache_clear()
    assert all(torch.equal(*pair) for pair in zip(as_it_is, with_avx2, strict=True))


@needs_kernels
def test_rows_that_do_not_lie_side_by_side_and_a_bias() -> None:
    matrix, bias = random_matrix(40, 64), torch.randn(40)
    wide = torch.randn(3, 128)
    x = wide[:, ::2]
    spread = Nvfp4Matrix(
        matrix.packed_RC.T.contiguous().T, matrix.block_scale_RB, matrix.tensor_scale
    )
    expected = native.times_codes(x.clone(), matrix, None) + bias
    assert torch.equal(native.times_codes(x, matrix, bias), expected)
    assert torch.equal(native.times_codes(x, spread, bias), expected)
    weight_RC = torch.randn(64, 40).bfloat16().T
    plain = native.times_dense(x.clone(), weight_RC.contiguous(), None) + bias
    assert torch.equal(native.times_dense(x, weight_RC, bias), plain)


@needs_kernels
def test_the_rule_is_rows_dtype_device_and_grad_mode() -> None:
    most, narrow = native.MOST_ROWS, torch.zeros(4, 32, dtype=torch.bfloat16)
    assert native.takes_codes(torch.zeros(most, 32), CODES)
    assert not native.takes_codes(torch.zeros(most + 1, 32), CODES)
    steps = native.MOST_STEPS
    assert native.takes_codes(torch.zeros(steps, 32), CODES, is_step=True)
    assert not native.takes_codes(torch.zeros(steps + 1, 32), CODES, is_step=True)
    assert not native.takes_codes(torch.zeros(0, 32), CODES)
    assert not native.takes_codes(torch.zeros(1, 32, dtype=torch.bfloat16), CODES)
    assert not native.takes_codes(torch.zeros(1, 32, device="meta"), CODES)
    assert native.takes_dense(torch.zeros(native.MOST_ROWS_DENSE, 32), narrow)
    assert native.takes_dense(torch.zeros(0, 32), narrow)
    assert native.times_dense(torch.zeros(0, 32), narrow, torch.zeros(4)).shape == (0, 4)
    assert not native.takes_dense(torch.zeros(native.MOST_ROWS_DENSE + 1, 32), narrow)
    assert native.takes_dense(torch.zeros(1, 32), narrow.float())
    assert not native.takes_dense(torch.zeros(1, 32), narrow.half())
    assert not native.takes_dense(torch.zeros(1, 24), torch.zeros(4, 24, dtype=torch.bfloat16))
    on_meta = CODES.to(torch.device("meta"))
    assert not native.takes_codes(torch.zeros(1, 32), on_meta)
    assert not native.takes_dense(torch.zeros(1, 32), narrow.to("meta"))
    with FakeTensorMode():
        assert not native.takes_codes(torch.zeros(1, 32), CODES)
    with torch.enable_grad():
        assert not native.takes_codes(torch.zeros(1, 32), CODES)
        assert not native.takes_dense(torch.zeros(1, 32), narrow)


@needs_kernels
def test_the_linear_product_follows_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = quantize(torch.randn(48, 64))
    decoded: list[int] = []

    def counted(weight: Nvfp4Matrix, dtype: torch.dtype) -> Tensor:
        decoded.append(1)
        return dequantize(weight, dtype=dtype)

    monkeypatch.setattr(gemm, "dense", counted)
    for rows, expected in ((1, 0), (native.MOST_ROWS, 0), (native.MOST_ROWS + 1, 1)):
        decoded.clear()
        dequant_linear(torch.randn(rows, 64), matrix, None)
        assert len(decoded) == expected


@needs_kernels
def test_one_token_of_each_text_is_multiplied_by_the_codes_and_a_text_as_torch_does() -> None:
    layer = Nvfp4Linear(torch.nn.Linear(640, 48), scheme="w4a16", backend="dequant")
    x, torchs = torch.randn(20, 640), dense(layer.codes(), torch.float32)
    text = torch.nn.functional.linear(x, torchs, layer.bias)
    steps = native.times_codes(x, layer.codes(), layer.bias)
    assert torch.equal(layer(x[None])[0], text)
    assert torch.equal(layer(x), text)
    assert torch.equal(layer(x[:, None])[:, 0], steps)
    assert torch.allclose(steps, text, atol=1e-5)
    assert not torch.equal(steps, text)


def without_kernels(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Everything is computed all the same."""
    native._kernels.cache_clear()
    matrix, x = quantize(torch.randn(48, 64)), torch.randn(2, 64)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert not native.takes_codes(x, CODES)
            assert not native.can_use(torch.zeros(1))
            expected = torch.nn.functional.linear(x, dequantize(matrix))
            assert torch.equal(dequant_linear(x, matrix, None), expected)
    native._kernels.cache_clear()


@needs_kernels
def test_without_a_compiler_torch_multiplies_and_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(built, "cpp_compiler", lambda: "")
    without_kernels(monkeypatch, caplog)
    assert len(caplog.records) == 1
    assert "g++" in caplog.text


@needs_kernels
@pytest.mark.parametrize("compiler", ["/bin/false", "/no/such/compiler"])
def test_a_compiler_that_fails_is_none_and_leaves_nothing(
    compiler: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(built, "cpp_compiler", lambda: compiler)
    without_kernels(monkeypatch, caplog)
    assert len(caplog.records) == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_another_processor_is_no_reason_to_complain(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    without_kernels(monkeypatch, caplog)
    assert not caplog.records
