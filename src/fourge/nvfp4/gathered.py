"""A weight whose NVFP4 form was put together from the rows of several processes.

It is what FSDP2 sets in the place of a sharded parameter while a layer computes. To autograd it is
a leaf with a shape, a dtype and a gradient; it has no values, and asking for them is an error.
``matrix`` is the weight. Its codes lie in memory that FSDP2 owns, frees when the layer is done, and
fills again before the layer's backward pass: whoever saved them for that sees them come back.
"""

from typing import Any

import torch
from torch import Tensor

from fourge.nvfp4.matrix import Nvfp4Matrix

_aten = torch.ops.aten


class GatheredWeight(Tensor):
    """A tensor without memory, and the NVFP4 matrix that it stands for."""

    matrix: Nvfp4Matrix

    @staticmethod
    def __new__(cls, matrix: Nvfp4Matrix, dtype: torch.dtype) -> "GatheredWeight":
        device = matrix.packed_RC.device
        weight: GatheredWeight = torch.Tensor._make_wrapper_subclass(
            cls, matrix.shape, dtype=dtype, device=device
        )
        return weight

    def __init__(self, matrix: Nvfp4Matrix, dtype: torch.dtype) -> None:
        self.matrix = matrix

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"GatheredWeight({tuple(self.shape)})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """The same weight again, for what FSDP2 does to make a parameter of it; nothing else."""
        weight = args[0]
        same = operation is _aten.detach.default or (
            operation is _aten.as_strided.default
            and tuple(args[1]) == tuple(weight.shape)
            and tuple(args[2]) == (weight.shape[1], 1)
        )
        if not same:
            raise NotImplementedError(f"{operation} of a weight that exists as codes only")
        return cls(weight.matrix, weight.dtype)
