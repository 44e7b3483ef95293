"""Which tensors the kernels of attention take (``lanes.hpp``)."""

import torch
from torch import Tensor

from fourge.nvfp4.built import has_memory

_LANES = 16  # values that a register holds: a head has a multiple of them


def fits_lanes(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether a head's values lie one after the other, in a dtype and number that kernels take."""
    return (
        has_memory(query)
        and query.dtype in (torch.float32, torch.bfloat16)
        and query.shape[-1] % _LANES == 0
        and query.shape[-1] == value.shape[-1]
        and {key.dtype, value.dtype} == {query.dtype}
        and all(each.stride(-1) == 1 for each in (query, key, value))
    )
