"""The ways to multiply by an NVFP4 weight, by name.

``dequant``  decode the weight into a scratch buffer of the activation's dtype and multiply as
             usual. Any device. The buffer is one matrix, reused by every layer.
             On a CPU up to 8 rows, or one token of each of up to 128 texts, are multiplied by the
             codes themselves (``native.py``): the same weights, summed in another order.
``fp4``      both operands stay in 4 bits and ``torch.nn.functional.scaled_mm`` multiplies them on
             the tensor cores. CUDA, compute capability 10.0 and up (12.1, the DGX Spark,
             included); needs quantised activations, so scheme ``w4a4``. This path has not been
             run by its authors, who had no such device: its arguments and its scale layout are
             tested on the CPU against torch's documented rules and torchao's layout.

The choice is made once, by ``choose_backend``, and never changed behind the caller's back.

Shapes: M activation rows, N weight rows, C columns of both.
"""

import threading
from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from fourge.core.errors import ConfigError
from fourge.nvfp4 import native
from fourge.nvfp4.blocks import BLOCK
from fourge.nvfp4.matrix import Nvfp4Matrix, dequantize

Scheme = Literal["w4a16", "w4a4"]
Backend = Literal["dequant", "fp4"]
FP4_CAPABILITY = (10, 0)


class _Buffers(threading.local):
    """One buffer per dtype and device, for each thread."""

    def __init__(self) -> None:
        self.of: dict[tuple[torch.dtype, torch.device], Tensor] = {}


_buffers = _Buffers()


def choose_backend(asked: str, scheme: Scheme, device: torch.device) -> Backend:
    """The backend to use, by rule: ``fp4`` where it can run, else ``dequant``.

    Raises:
        ConfigError: a backend was asked for by name and cannot run here.
    """
    if asked not in ("auto", "dequant", "fp4"):
        raise ConfigError(f"There is no backend {asked!r}.", fix="one of: auto, dequant, fp4")
    obstacle = _fp4_obstacle(scheme, device)
    if asked == "fp4" and obstacle:
        raise ConfigError(
            "The fp4 backend cannot run here.",
            why=obstacle,
            fix='write backend="dequant", which runs everywhere, or "auto" to have it chosen',
        )
    if asked == "dequant" or obstacle:
        return "dequant"
    return "fp4"


def _fp4_obstacle(scheme: Scheme, device: torch.device) -> str:
    """Why ``fp4`` cannot run, or an empty string."""
    if device.type != "cuda":
        return f"the model is on {device.type}; FP4 tensor cores are in CUDA devices"
    capability = torch.cuda.get_device_capability(device)
    if capability < FP4_CAPABILITY:
        return f"this device has compute capability {capability}; FP4 needs {FP4_CAPABILITY}"
    if scheme != "w4a4":
        return f"scheme {scheme} keeps activations in 16 bits; FP4 multiplies 4-bit operands only"
    return ""


def scratch(shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A buffer of this shape whose content lasts until the next call in this thread.

    Fresh memory costs several times the decode itself (page faults), so one buffer per dtype
    and device grows to the largest weight and stays.
    """
    key = (dtype, device)
    need = shape[0] * shape[1]
    if key not in _buffers.of or _buffers.of[key].numel() < need:
        with torch.inference_mode(False):  # it outlives the block that first needs it
            _buffers.of[key] = torch.empty(need, dtype=dtype, device=device)
    return _buffers.of[key][:need].view(shape)


def drop_scratch() -> None:
    """Free this thread's buffers; the next call makes new ones."""
    _buffers.of.clear()


def dense(matrix: Nvfp4Matrix, dtype: torch.dtype) -> Tensor:
    """The weight decoded into the scratch buffer: use it before the next call."""
    out = scratch(matrix.shape, dtype, matrix.packed_RC.device)
    if out.is_meta:  # a plan's: there is a size, and no value to decode
        return out
    return native.decode_(matrix, out) if native.can_use(out) else dequantize(matrix, out=out)


def scratch_nbytes(shapes: Iterable[tuple[int, int]], dtype: torch.dtype) -> int:
    """What the buffer takes once every weight of these shapes has been decoded into it."""
    return max((rows * cols for rows, cols in shapes), default=0) * dtype.itemsize


def dequant_linear(
    x: Tensor, weight: Nvfp4Matrix, bias: Tensor | None, *, is_step: bool = False
) -> Tensor:
    """``x @ weight.T + bias``, in the dtype of ``x``; ``is_step`` as in ``native.takes_codes``."""
    if native.takes_codes(x, weight, is_step=is_step):
        return native.times_codes(x, weight, bias)
    return functional.linear(x, dense(weight, x.dtype), bias)


def fp4_matmul(activation: Nvfp4Matrix, weight: Nvfp4Matrix, dtype: torch.dtype) -> Tensor:
    """``activation @ weight.T`` on FP4 tensor cores."""
    return functional.scaled_mm(**scaled_mm_arguments(activation, weight), output_dtype=dtype)


def scaled_mm_arguments(activation: Nvfp4Matrix, weight: Nvfp4Matrix) -> dict[str, Any]:
    """What ``scaled_mm`` documents for two-level NVFP4 operands.

    Raises:
        ConfigError: a dimension that the hardware cannot take.
    """
    require_fp4_shape(*weight.shape)
    two_level = [functional.ScalingType.BlockWise1x16, functional.ScalingType.TensorWise]
    swizzle = [functional.SwizzleType.SWIZZLE_32_4_4, functional.SwizzleType.NO_SWIZZLE]
    return {
        "mat_a": activation.packed_RC.view(torch.float4_e2m1fn_x2),
        "mat_b": weight.packed_RC.view(torch.float4_e2m1fn_x2).t(),
        "scale_a": [swizzled(activation.block_scale_RB), activation.tensor_scale],
        "scale_recipe_a": two_level,
        "scale_b": [swizzled(weight.block_scale_RB), weight.tensor_scale],
        "scale_recipe_b": two_level,
        "swizzle_a": swizzle,
        "swizzle_b": swizzle,
    }


def require_fp4_shape(rows: int, cols: int) -> None:
    """Raise for a weight that ``scaled_mm`` cannot take."""
    if rows % 16 or cols % 32:
        raise ConfigError(
            f"The fp4 backend needs rows in multiples of 16 and columns in multiples of 32; "
            f"this weight is {rows} x {cols}.",
            fix='use backend="dequant", or keep the layer in bf16',
        )


def swizzled(block_scale_RB: Tensor) -> Tensor:
    """Block scales in the order that the tensor cores read, flat.

    Rows are padded to 128 and blocks to 4; each 128 x 4 tile becomes 512 bytes, in which scale
    (r, b) of the tile lies at byte ``(r % 32) * 16 + (r // 32) * 4 + b``.
    """
    rows, cols = block_scale_RB.shape
    padded_rows, padded_cols = -(-rows // 128) * 128, -(-cols // 4) * 4
    raw = torch.zeros(padded_rows, padded_cols, dtype=torch.uint8, device=block_scale_RB.device)
    raw[:rows, :cols] = block_scale_RB.view(torch.uint8)
    tiles = raw.view(padded_rows // 128, 4, 32, padded_cols // 4, 4).permute(0, 3, 2, 1, 4)
    return tiles.reshape(-1).view(torch.float8_e4m3fn)


def swizzled_numel(rows: int, cols: int) -> int:
    """How many scales ``scaled_mm`` expects for an operand of this shape."""
    return -(-rows // 128) * 128 * (-(-(cols // BLOCK) // 4) * 4)
