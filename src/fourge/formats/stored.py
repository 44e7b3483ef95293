"""A tensor in a file: what it is without reading it, and how to read it.

Every reader gives a mapping from name to ``Stored``; every writer takes one. What lies between
(quantising, renaming, splitting) maps one such mapping to another, and nothing is read before a
writer or a model asks for it, one tensor at a time.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from fourge.core.errors import FormatError
from fourge.core.files import Buffer
from fourge.nvfp4.matrix import Nvfp4Matrix

Value = Tensor | Nvfp4Matrix
NVFP4 = "nvfp4"

KINDS = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "bool": torch.bool,
    "c64": torch.complex64,
    "c128": torch.complex128,
}
KIND_OF = {dtype: kind for kind, dtype in KINDS.items()}
MAX_DIMS = 16
_MAX_VALUES = 1 << 56  # torch counts bytes in 63 bits, and takes an empty dimension for 1


@dataclass(frozen=True, slots=True)
class Stored:
    """``shape`` is that of the decoded tensor; ``nbytes`` what it takes where it lies."""

    shape: tuple[int, ...]
    kind: str  # a key of KINDS, "nvfp4", or the name of a GGUF quantisation
    nbytes: int
    read: Callable[[], Value]

    def dense(self) -> Tensor:
        """Read it as a tensor.

        Raises:
            FormatError: it is NVFP4, where something else is needed.
        """
        value = self.read()
        if isinstance(value, Nvfp4Matrix):
            raise FormatError(f"A tensor of shape {self.shape} is NVFP4 where it may not be.")
        return value

    def matrix(self) -> Nvfp4Matrix:
        """Read it as NVFP4, which its ``kind`` has promised."""
        value = self.read()
        assert isinstance(value, Nvfp4Matrix), f"kind {self.kind} read as a dense tensor"
        return value


Tensors = Mapping[str, Stored]


def in_memory(value: Value) -> Stored:
    """A value that is already there."""
    if isinstance(value, Nvfp4Matrix):
        nbytes = Nvfp4Matrix.nbytes_for(*value.shape)
        return Stored(value.shape, NVFP4, nbytes, lambda: value)
    return Stored(tuple(value.shape), KIND_OF[value.dtype], value.nbytes, lambda: value)


def derived(source: Stored, kind: str, make: Callable[[Tensor], Tensor]) -> Stored:
    """A dense tensor computed, when it is read, from another of the same shape."""
    nbytes = prod(source.shape) * KINDS[kind].itemsize
    return Stored(source.shape, kind, nbytes, functools.partial(_made, source, make))


def _made(source: Stored, make: Callable[[Tensor], Tensor]) -> Tensor:
    return make(source.dense())


def is_possible(shape: tuple[int, ...]) -> bool:
    """Whether a tensor can have this shape: torch has limits even for one without values."""
    return len(shape) <= MAX_DIMS and prod(max(dim, 1) for dim in shape) < _MAX_VALUES


def scale_from(stored: Tensor, name: str, *, divides: bool = False) -> Tensor:
    """A scale as it lies in a file, as a float32 that multiplies.

    Raises:
        FormatError: it is not one positive number, or is none that float32 can multiply by.
    """
    if stored.numel() == 1 and stored.is_floating_point():
        scale = stored.float().reshape(())
        scale = 1.0 / scale if divides else scale
        if 0 < scale.item() < float("inf"):
            return scale
    raise FormatError(
        f"{name} is not a scale.",
        why=f"one positive number is needed; this is {stored.dtype} of shape "
        f"{tuple(stored.shape)}: {stored.flatten()[:4].tolist()}",
        fix="export the file again",
    )


def tensor_from(data: Buffer, kind: str, shape: tuple[int, ...]) -> Tensor:
    """The bytes as a tensor that owns them."""
    if not data:
        return torch.empty(shape, dtype=KINDS[kind])
    return torch.frombuffer(data, dtype=KINDS[kind]).view(shape)


def bytes_of(tensor: Tensor) -> memoryview:
    """The bytes of a tensor in C order, without a copy if it lies so."""
    flat = tensor.detach().cpu().contiguous().view(-1)
    return flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")
