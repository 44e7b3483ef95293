"""A few rows times a weight, read as it is stored: what decoding token by token consists of.

    y[m, r] = sum over c of x[m, c] * (level[code[r, c]] * (block_scale * tensor_scale))

For one row a product takes as long as reading the weight. Decoded to float32 first, a weight of
4.5 bits is read once, written as 32 and read again as 32: slower than one that was never quantised.
Here a block is decoded in registers, and the codes are all that is read. The same holds for a bf16
weight under float32 activations (the head): its bits are the upper half of the float's.

The numbers that are multiplied are those of ``dequantize``, bit for bit; only the order of the sum
is another, so a result is off by at most 2**-23 * (C / 8 + 8) of the sum of magnitudes, as any
float32 product of that many terms may be. A weight row is summed by one thread, and an activation
row by itself: a result depends neither on the number of threads nor on the other rows.

The rule: at most ``MOST_ROWS`` rows, float32, on a CPU with AVX2, no gradient being recorded. The
kernel (``few_rows.cpp``) is compiled when first needed, about two seconds, and kept in the user's
cache. On another CPU, or where it cannot be compiled, the weight is decoded; one line says so.

Shapes: M activation rows, R weight rows, C columns of both.
"""

import ctypes
import functools
import hashlib
import logging
import subprocess
from pathlib import Path

import torch
from torch import Tensor

from fourge.core.errors import FourgeError
from fourge.core.files import user_cache, whole_file
from fourge.nvfp4.blocks import BLOCK
from fourge.nvfp4.compiled import cpp_compiler
from fourge.nvfp4.matrix import Nvfp4Matrix

MOST_ROWS = 16  # beyond, decoding once and a blocked product is as fast
_ALONE = 1 << 16  # weights below which a second thread costs more than it does
_SOURCE = Path(__file__).with_suffix(".cpp")
_FLAGS = ("-O3", "-mavx2", "-mfma", "-fopenmp", "-fPIC", "-shared")

logger = logging.getLogger(__name__)


def takes(x: Tensor) -> bool:
    """Whether these activation rows are multiplied here: by shape, dtype, device, grad mode."""
    return (
        0 < len(x) <= MOST_ROWS
        and x.dtype == torch.float32
        and x.device.type == "cpu"
        and not torch.is_grad_enabled()
        and _kernels() is not None
    )


def takes_bf16(weight_RC: Tensor) -> bool:
    """Whether this dense weight is one that ``times_bf16`` can read."""
    return weight_RC.dtype == torch.bfloat16 and weight_RC.shape[1] % BLOCK == 0


def times_codes(x: Tensor, weight: Nvfp4Matrix, bias: Tensor | None) -> Tensor:
    """``x @ weight.T + bias`` for rows that ``takes`` takes."""
    kernels = _kernels()
    assert kernels is not None, "takes() was asked"
    x, packed_RC, scale_RB = x.contiguous(), weight.packed_RC.contiguous(), weight.block_scale_RB
    rows, cols = weight.shape
    y = x.new_empty(len(x), rows)
    kernels.times_codes(
        x.data_ptr(), packed_RC.data_ptr(), scale_RB.contiguous().data_ptr(),
        weight.tensor_scale.data_ptr(), y.data_ptr(), len(x), rows, cols, _threads(rows * cols),
    )  # fmt: skip
    return y if bias is None else y.add_(bias)


def times_bf16(x: Tensor, weight_RC: Tensor, bias: Tensor | None) -> Tensor:
    """``x @ weight.T + bias`` for rows and a bf16 weight that are taken."""
    kernels = _kernels()
    assert kernels is not None, "takes() was asked"
    x, weight_RC = x.contiguous(), weight_RC.contiguous()
    rows, cols = weight_RC.shape
    y = x.new_empty(len(x), rows)
    kernels.times_bf16(
        x.data_ptr(), weight_RC.data_ptr(), y.data_ptr(), len(x), rows, cols, _threads(rows * cols)
    )
    return y if bias is None else y.add_(bias)


def _threads(weights: int) -> int:
    return torch.get_num_threads() if weights >= _ALONE else 1


@functools.cache
def _kernels() -> ctypes.CDLL | None:
    """The compiled kernels, or none by rule."""
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        return None
    try:
        kernels = ctypes.CDLL(str(_built()))
    except (FourgeError, OSError, subprocess.SubprocessError) as error:
        logger.warning("tokens are decoded slowly, every weight decoded for each: %s", error)
        return None
    pointer, count = ctypes.c_void_p, ctypes.c_int64
    kernels.times_codes.argtypes = [pointer] * 5 + [count] * 3 + [ctypes.c_int]
    kernels.times_bf16.argtypes = [pointer] * 3 + [count] * 3 + [ctypes.c_int]
    kernels.times_codes.restype = kernels.times_bf16.restype = None
    return kernels


def _built() -> Path:
    """The library, from the cache or compiled now."""
    compiler = cpp_compiler()
    if not compiler:
        raise FileNotFoundError("a C++ compiler (g++) is missing")
    source = _SOURCE.read_bytes()
    key = hashlib.blake2b(source + " ".join((compiler, *_FLAGS)).encode(), digest_size=8)
    path = user_cache() / "kernels" / f"few_rows-{key.hexdigest()}.so"
    if not path.exists():
        with whole_file(path, overwrite=True) as temporary:
            command = [compiler, *_FLAGS, str(_SOURCE), "-o", str(temporary)]
            subprocess.run(command, check=True, capture_output=True)
    return path
