"""The update of bf16 weights with int8 moments by a kernel of its own, on a CPU.

The compiled stage of ``kernel.py`` takes a third of its time to be called: a model has hundreds of
tensors, most of them small. This does the same operations in the same order (``native.cpp``), so
that no bit differs, and one call takes a whole tensor.
"""

import ctypes
import functools
from pathlib import Path

import torch
from torch import Tensor

from fourge.nvfp4.built import has_memory, library, threads_for
from fourge.optim.moments import MomentFormat, State

_GRADS = (torch.bfloat16, torch.float32)


def takes(weight_NK: Tensor, residual: Tensor | None, grad_NK: Tensor, form: MomentFormat) -> bool:
    """Whether ``update_`` is for these blocks."""
    return (
        form == "int8"
        and residual is None
        and weight_NK.dtype == torch.bfloat16
        and grad_NK.dtype in _GRADS
        and has_memory(weight_NK)
        and _kernels() is not None
    )


def update_(
    weight_NK: Tensor, grad_NK: Tensor, state: State, numbers: Tensor, words: Tensor, first: int
) -> None:
    """Update weight and moments of these blocks in place, as ``kernel.update_`` does."""
    kernels = _kernels()
    assert kernels is not None, "asked before whether there are any"
    is_bf16 = grad_NK.dtype == torch.bfloat16
    kernel = kernels.update_bf16 if is_bf16 else kernels.update_float32
    moments = (state[name] for name in ("m", "v", "v_low", "v_step"))
    tensors = (weight_NK, grad_NK.contiguous(), *moments, numbers, words)
    blocks, count = weight_NK.shape
    pointers = [each.data_ptr() for each in tensors]
    kernel(*pointers, first, blocks, count, threads_for(weight_NK.numel()))


@functools.cache
def _kernels() -> ctypes.CDLL | None:
    kernels = library(Path(__file__).with_suffix(".cpp"))
    if kernels is None:
        return None
    pointer, index = ctypes.c_void_p, ctypes.c_int64
    for kernel in (kernels.update_bf16, kernels.update_float32):
        kernel.argtypes = [pointer] * 8 + [index] * 2 + [ctypes.c_int] * 2
    return kernels
