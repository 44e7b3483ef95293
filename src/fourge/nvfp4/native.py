"""Kernels for CPUs: products that read a weight as it is stored, and codes made in one pass.

    y[m, r] = sum over c of x[m, c] * (level[code[r, c]] * (block_scale * tensor_scale))

For one row a product takes as long as reading the weight. Decoded to float32 first, a weight of
4.5 bits is read once, written as 32 and read again as 32: slower than one that was never quantised.
Here a block is decoded in registers, and the codes are all that is read. The same holds for a bf16
weight under float32 activations (the head): its bits are the upper half of the float's. A float32
head has the same kernel, so that a model's logits do not depend on what its file held it in.

Of many rows (a batch that is decoded together) sixteen stand in a register, and a weight is decoded
once for all of them: three quarters of the time of a decoded weight and torch's product at 64 rows.

The numbers that are multiplied are those of ``dequantize``, bit for bit; only the order of the sum
is another, so a result is off by at most 2**-24 * (C / 16 + 5) of the sum of magnitudes. A weight
row is summed by one thread, and an activation row by itself, and registers of 512 bits sum in the
order of two of 256: a result depends neither on the number of threads nor on the other rows nor on
the processor.

The rule: at most ``MOST_ROWS`` rows (one token of each of up to ``MOST_STEPS`` texts; of a dense
weight ``MOST_ROWS_DENSE``), float32, on a CPU with AVX2, no gradient being recorded, nothing being
traced. More rows are worth a decoded weight, which ``decode_`` writes (bit for bit as
``dequantize``, sooner) and torch multiplies.

``encode_`` is the way back, for our own recipe: a block's two candidate scales, its errors under
both and its codes are found while its 16 values are in registers, by the operations of
``recipe.py`` in their order, so that no bit differs. Compiled stages read the weight several times.

``sum_of_squares`` is for the norm of a gradient: a compiled stage takes longer to be called than
to read a small layer's.

The kernels (``native.cpp`` and what it includes) are compiled when first needed (``built.py``);
where there are none, everything takes the way of torch.

Shapes: M activation rows, R weight rows, C columns of both.
"""

import ctypes
import functools
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fourge.nvfp4.blocks import BLOCK
from fourge.nvfp4.built import has_memory, library, threads_for

if TYPE_CHECKING:
    from fourge.nvfp4.matrix import Nvfp4Matrix

MOST_ROWS = 8  # of a text: more are multiplied as plain transformers does, to the same bits
MOST_STEPS = 128  # beyond, a decoded weight and torch's product are as fast
MOST_ROWS_DENSE = 64  # a float32 copy of a bf16 head, made for each product, costs more
_DTYPES = (torch.bfloat16, torch.float32)
_LEAST_SCALE = 2.0**-100  # below, a reciprocal may not be finite


def takes_codes(x: Tensor, weight: "Nvfp4Matrix", *, is_step: bool = False) -> bool:
    """Whether ``times_codes`` is for these: by shape, dtype, device and grad mode alone.

    The rows are tokens of a text, or (``is_step``) one of each of many texts.
    """
    most = MOST_STEPS if is_step else MOST_ROWS
    return 0 < len(x) <= most and _takes(x) and weight.packed_RC.is_cpu


def takes_dense(x: Tensor, weight_RC: Tensor) -> bool:
    """Whether ``times_dense`` is for these; also for no rows, which are not worth a copy of it."""
    is_known = weight_RC.dtype in _DTYPES and weight_RC.is_cpu and not weight_RC.shape[1] % BLOCK
    return is_known and len(x) <= MOST_ROWS_DENSE and _takes(x)


def _takes(x: Tensor) -> bool:
    return x.dtype == torch.float32 and not torch.is_grad_enabled() and can_use(x)


def can_use(values: Tensor) -> bool:
    """Whether there are kernels for such values, and they have memory that a kernel can use."""
    return values.dtype in _DTYPES and has_memory(values) and _kernels() is not None


def times_codes(x: Tensor, weight: "Nvfp4Matrix", bias: Tensor | None) -> Tensor:
    """``x @ weight.T + bias``."""
    rows, cols = weight.shape
    x, y = x.contiguous(), x.new_empty(len(x), rows)
    codes = _codes(weight)
    pointers = (x.data_ptr(), *(part.data_ptr() for part in codes), y.data_ptr())
    _loaded().times_codes(*pointers, len(x), rows, cols, threads_for(rows * cols))
    return y if bias is None else y.add_(bias)


def times_dense(x: Tensor, weight_RC: Tensor, bias: Tensor | None) -> Tensor:
    """``x @ weight.T + bias`` in float32: the same bits for a bf16 weight and its float32 copy."""
    rows, cols = weight_RC.shape
    x, y, weight_RC = x.contiguous(), x.new_empty(len(x), rows), weight_RC.contiguous()
    is_bf16 = weight_RC.dtype == torch.bfloat16
    kernel = _loaded().times_bf16 if is_bf16 else _loaded().times_float32
    pointers = (x.data_ptr(), weight_RC.data_ptr(), y.data_ptr())
    kernel(*pointers, len(x), rows, cols, threads_for(rows * cols))
    return y if bias is None else y.add_(bias)


def decode_(weight: "Nvfp4Matrix", out_RC: Tensor) -> Tensor:
    """``dequantize(weight, out=out_RC)`` for a contiguous buffer that ``can_use`` allows."""
    rows, cols = weight.shape
    codes = _codes(weight)
    is_bf16 = out_RC.dtype == torch.bfloat16
    kernel = _loaded().decode_bf16 if is_bf16 else _loaded().decode_float32
    pointers = (*(part.data_ptr() for part in codes), out_RC.data_ptr())
    kernel(*pointers, rows, cols, threads_for(rows * cols))
    return out_RC


def can_encode(weight: Tensor, tensor_scale: Tensor) -> bool:
    """Whether ``encode_`` is for these, in place of the stages of ``recipe.FOURGE``."""
    return can_use(weight) and float(tensor_scale) >= _LEAST_SCALE


def encode_(weight: Tensor, tensor_scale: Tensor, packed: Tensor, block_scale: Tensor) -> bool:
    """Write the codes and block scales of a contiguous weight; False if a value is not finite."""
    is_bf16 = weight.dtype == torch.bfloat16
    kernel = _loaded().encode_bf16 if is_bf16 else _loaded().encode_float32
    tensors = (weight, tensor_scale, packed, block_scale)
    count = weight.numel()
    pointers = (each.data_ptr() for each in tensors)
    return bool(kernel(*pointers, count // BLOCK, threads_for(count)))


def sum_of_squares(row_NK: Tensor) -> float:
    """Of contiguous rows of 256 values that ``can_use`` allows."""
    is_bf16 = row_NK.dtype == torch.bfloat16
    kernel = _loaded().squares_bf16 if is_bf16 else _loaded().squares_float32
    return float(kernel(row_NK.data_ptr(), len(row_NK), threads_for(row_NK.numel())))


def _codes(weight: "Nvfp4Matrix") -> list[Tensor]:
    """What a kernel is given pointers to; to be held until it is done."""
    parts = (weight.packed_RC, weight.block_scale_RB, weight.tensor_scale)
    return [part.contiguous() for part in parts]


def _loaded() -> ctypes.CDLL:
    kernels = _kernels()
    assert kernels is not None, "asked before whether there are any"
    return kernels


@functools.cache
def _kernels() -> ctypes.CDLL | None:
    """The compiled kernels; none by rule, or where they cannot be had."""
    kernels = library(Path(__file__).with_suffix(".cpp"))
    if kernels is None:
        return None
    pointer, count = ctypes.c_void_p, ctypes.c_int64
    kernels.times_codes.argtypes = [pointer] * 5 + [count] * 3 + [ctypes.c_int]
    for kernel in (kernels.times_bf16, kernels.times_float32):
        kernel.argtypes = [pointer] * 3 + [count] * 3 + [ctypes.c_int]
    for kernel in (kernels.encode_bf16, kernels.encode_float32):
        kernel.argtypes, kernel.restype = [pointer] * 4 + [count, ctypes.c_int], ctypes.c_bool
    for kernel in (kernels.squares_bf16, kernels.squares_float32):
        kernel.argtypes, kernel.restype = [pointer, count, ctypes.c_int], ctypes.c_double
    for kernel in (kernels.decode_bf16, kernels.decode_float32):
        kernel.argtypes = [pointer] * 4 + [count] * 2 + [ctypes.c_int]
    return kernels
