import pytest
import torch

from fourge.core.errors import ConfigError
from fourge.nvfp4.gemm import (
    choose_backend,
    dense,
    scaled_mm_arguments,
    scratch,
    swizzled,
    swizzled_numel,
)
from fourge.nvfp4.matrix import dequantize, quantize

CPU = torch.device("cpu")


def test_the_cpu_gets_dequant_by_rule() -> None:
    assert choose_backend("auto", "w4a16", CPU) == "dequant"
    assert choose_backend("auto", "w4a4", CPU) == "dequant"
    assert choose_backend("dequant", "w4a4", CPU) == "dequant"


def test_fp4_on_a_cpu_is_an_error_that_says_what_to_write() -> None:
    with pytest.raises(ConfigError) as caught:
        choose_backend("fp4", "w4a4", CPU)
    assert 'backend="dequant"' in caught.value.fix


@pytest.mark.parametrize(
    ("capability", "scheme", "backend"),
    [((12, 1), "w4a4", "fp4"), ((10, 0), "w4a4", "fp4"), ((12, 1), "w4a16", "dequant"),
     ((9, 0), "w4a4", "dequant")],
)  # fmt: skip
def test_the_rule_follows_capability_and_scheme(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], scheme: str, backend: str
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    chosen = choose_backend("auto", scheme, torch.device("cuda"))  # type: ignore[arg-type]
    assert chosen == backend
    if backend == "dequant":
        with pytest.raises(ConfigError):
            choose_backend("fp4", scheme, torch.device("cuda"))  # type: ignore[arg-type]


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(ConfigError, match="magic"):
        choose_backend("magic", "w4a4", CPU)


@pytest.mark.parametrize(("rows", "cols"), [(128, 64), (16, 32), (200, 96), (257, 1040), (1, 16)])
def test_the_swizzle_is_torchaos(rows: int, cols: int) -> None:
    from torchao.prototype.mx_formats.utils import to_blocked

    raw = torch.randint(0, 120, (rows, cols // 16), dtype=torch.uint8)
    ours = swizzled(raw.view(torch.float8_e4m3fn))
    assert ours.numel() == swizzled_numel(rows, cols)
    assert torch.equal(ours.view(torch.uint8), to_blocked(raw).flatten())


def test_the_swizzle_follows_the_documented_byte_order() -> None:
    rows, cols = 300, 6
    raw = torch.randint(0, 120, (rows, cols), dtype=torch.uint8)
    flat = swizzled(raw.view(torch.float8_e4m3fn)).view(torch.uint8)
    for r, c in ((0, 0), (31, 3), (32, 0), (127, 5), (128, 4), (299, 5)):
        byte = ((r // 128) * 2 + c // 4) * 512 + (r % 32) * 16 + ((r % 128) // 32) * 4 + c % 4
        assert flat[byte] == raw[r, c]


def test_the_fp4_arguments_follow_the_documented_rules() -> None:
    activation, weight = quantize(torch.randn(5, 64)), quantize(torch.randn(32, 64))
    args = scaled_mm_arguments(activation, weight)
    assert args["mat_a"].dtype is torch.float4_e2m1fn_x2
    assert tuple(args["mat_a"].shape) == (5, 32)
    assert tuple(args["mat_b"].shape) == (32, 32)
    assert args["mat_b"].stride() == (1, 32)  # TN: the second operand is column-major
    for side, rows in (("a", 5), ("b", 32)):
        block, tensor = args[f"scale_{side}"]
        assert block.dtype is torch.float8_e4m3fn
        assert block.is_contiguous()
        assert block.numel() == swizzled_numel(rows, 64)
        assert tensor.dtype is torch.float32
        assert len(args[f"scale_recipe_{side}"]) == len(args[f"swizzle_{side}"]) == 2


def test_the_arguments_are_those_that_scaled_mm_takes() -> None:
    """It gets as far as torch's own device check: names and types are right."""
    from fourge.nvfp4.gemm import fp4_matmul

    with pytest.raises((RuntimeError, NotImplementedError, ValueError)) as caught:
        fp4_matmul(quantize(torch.randn(16, 64)), quantize(torch.randn(32, 64)), torch.bfloat16)
    assert not isinstance(caught.value, TypeError)
    assert "argument" not in str(caught.value)


@pytest.mark.parametrize("shape", [(24, 64), (32, 48)])
def test_shapes_that_fp4_cannot_take_are_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(ConfigError, match="multiples of"):
        scaled_mm_arguments(quantize(torch.randn(2, shape[1])), quantize(torch.randn(shape)))


@pytest.mark.gpu
@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() < (10, 0),
    reason="needs FP4 tensor cores",
)
def test_fp4_multiplies_what_dequant_multiplies() -> None:
    from fourge.nvfp4.gemm import fp4_matmul

    activation = quantize(torch.randn(64, 256, device="cuda"))
    weight = quantize(torch.randn(128, 256, device="cuda"))
    expected = dequantize(activation) @ dequantize(weight).T
    product = fp4_matmul(activation, weight, torch.bfloat16).float()
    torch.testing.assert_close(
        product, expected, rtol=2e-2, atol=2e-2 * expected.abs().max().item()
    )


def test_the_scratch_buffer_is_one_and_grows() -> None:
    small = scratch((4, 16), torch.float64, CPU)
    large = scratch((8, 32), torch.float64, CPU)
    again = scratch((4, 16), torch.float64, CPU)
    assert again.data_ptr() == large.data_ptr()
    assert small.shape == again.shape == (4, 16)


def test_dense_is_the_decoded_weight() -> None:
    matrix = quantize(torch.randn(8, 32))
    assert torch.equal(dense(matrix, torch.float32), dequantize(matrix))
    assert torch.equal(dense(matrix, torch.bfloat16), dequantize(matrix, dtype=torch.bfloat16))


def test_the_buffer_has_the_size_that_a_plan_is_told() -> None:
    from fourge.nvfp4 import gemm

    shapes = [(16, 32), (48, 64), (64, 16)]
    for shape in shapes:
        gemm.scratch(shape, torch.float64, torch.device("cpu"))  # a dtype that nobody else uses
    held = gemm._buffers.of.pop((torch.float64, torch.device("cpu")))
    assert held.nbytes == gemm.scratch_nbytes(shapes, torch.float64)
    assert gemm.scratch_nbytes([], torch.float64) == 0


def test_a_weight_without_values_is_decoded_to_its_size() -> None:
    from fourge.nvfp4.gemm import dense
    from fourge.nvfp4.matrix import Nvfp4Matrix

    matrix = Nvfp4Matrix.empty(32, 64, "meta")
    parts = (matrix.packed_RC, matrix.block_scale_RB, matrix.tensor_scale)
    assert sum(part.nbytes for part in parts) == Nvfp4Matrix.nbytes_for(32, 64)
    decoded = dense(matrix, torch.bfloat16)
    assert decoded.is_meta
    assert (decoded.shape, decoded.dtype) == ((32, 64), torch.bfloat16)
