"""Bytes that are alive while code runs on the meta device: the size of a step without the step.

A tensor on the meta device has a shape and a dtype and no memory. Every operation that torch
executes passes a dispatch mode, which sees the storage of each result; a finaliser sees it go.
What is alive between is what the same code would hold on a real device, because it *is* the same
code: forward, recomputation, loss and backward as they are, for any architecture.

Bytes are counted apart by the size of their piece. glibc serves a piece of 32 MiB or more by a
mapping of its own, which goes back to the system when it is freed; smaller ones come from a heap
that rarely shrinks. So a process holds, at any time, its large pieces of that moment and the most
that its small ones ever were.

What a meta tensor cannot say is answered for the worst or the usual case: a number is 1 (every
mask is full, every value is finite, the gradient of the loss is one), all of a batch's tokens
differ.
"""

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

LARGE = 32 << 20  # bytes; glibc's largest threshold for a mapping (mallopt(3), M_MMAP_THRESHOLD)


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes in small and in large pieces."""

    small: int = 0
    large: int = 0

    @property
    def total(self) -> int:
        return self.small + self.large

    def __add__(self, other: "Held") -> "Held":
        return Held(self.small + other.small, self.large + other.large)

    def __sub__(self, other: "Held") -> "Held":
        return Held(self.small - other.small, self.large - other.large)

    def times(self, count: int) -> "Held":
        return Held(self.small * count, self.large * count)

    def highest(self, other: "Held") -> "Held":
        """The most of each, whenever it was."""
        return Held(max(self.small, other.small), max(self.large, other.large))


def pieces(*sizes: int) -> Held:
    """Bytes of pieces of these sizes."""
    small = sum(size for size in sizes if size < LARGE)
    return Held(small, sum(sizes) - small)


class LiveBytes(TorchDispatchMode):
    """Counts the storages that operations make inside the block, until each is freed.

    Those of ``there`` were made before, and are not counted when an operation passes them on.
    """

    def __init__(self, there: Iterable[Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = Held()
        self._most = Held()
        self._sizes: dict[int, int] = {}
        self._there = {tensor.untyped_storage()._cdata for tensor in there}

    def lap(self) -> Held:
        """The most that was alive since the last call."""
        most, self._most = self._most, self.now
        return most

    def briefly(self, nbytes: int) -> None:
        """Count bytes that are held for a moment on top of what is alive now."""
        self._most = self._most.highest(self.now + pieces(nbytes))

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if operation is torch.ops.aten._local_scalar_dense.default:
            return 1
        if operation is torch.ops.aten._unique2.default:
            result = _all_differ(args[0])
        else:
            result = operation(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._count(leaf)
        return result

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._sizes or key in self._there:
            return
        self._sizes[key] = storage.nbytes()
        self.now = self.now + pieces(storage.nbytes())
        self._most = self._most.highest(self.now)
        weakref.finalize(storage, self._gone, key)

    def _gone(self, key: int) -> None:
        self.now = self.now - pieces(self._sizes.pop(key))


def _all_differ(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    flat = values.reshape(-1)
    return torch.empty_like(flat), torch.empty_like(flat), flat.new_empty(0)
