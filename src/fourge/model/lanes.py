"""The kernels of blocks: which tensors they take, and how they are called (``lanes.hpp``)."""

import ctypes
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fourge.nvfp4.built import has_memory, library

_LANES = 16  # values that a register holds: a head has a multiple of them
_KINDS = {torch.float32: "float32", torch.bfloat16: "bf16"}


def fits_lanes(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether a head's values lie one after the other, in a dtype and number that kernels take."""
    return (
        has_lanes(query)
        and query.shape[-1] == value.shape[-1]
        and {key.dtype, value.dtype} == {query.dtype}
        and all(each.stride(-1) == 1 for each in (query, key, value))
    )


def has_lanes(values: Tensor) -> bool:
    """Whether they have memory, and are of a dtype and number that kernels take."""
    return has_memory(values) and values.dtype in _KINDS and values.shape[-1] % _LANES == 0


def kernels_beside(module: str, **pointers: int) -> ctypes.CDLL | None:
    """The kernels of the C++ file beside a module: so many pointers each, a scale, the threads."""
    kernels = library(Path(module).with_suffix(".cpp"))
    for name, count in pointers.items() if kernels is not None else ():
        for dtype in _KINDS:
            taken = [*[ctypes.c_void_p] * count, ctypes.c_float, ctypes.c_int]
            kernel_for(kernels, name, dtype).argtypes = taken
    return kernels


def kernel_for(kernels: ctypes.CDLL | None, name: str, dtype: torch.dtype) -> Any:
    """One of them, for values of a dtype."""
    assert kernels is not None, "asked before whether there are any"
    return getattr(kernels, f"{name}_{_KINDS[dtype]}")
