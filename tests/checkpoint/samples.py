"""States with a tensor of every type, and how to compare them."""

from pathlib import Path

import torch
from torch import Tensor

from fourge.checkpoint.state import TrainState
from fourge.formats.stored import bytes_of


def sample(step: int = 1, seed: int = 0) -> TrainState:
    random = torch.Generator().manual_seed(seed)

    def bits(*shape: int) -> Tensor:
        return torch.randint(0, 256, shape, dtype=torch.uint8, generator=random)

    tensors = {
        "bf16": bits(3, 8).view(torch.bfloat16),
        "f32": bits(2, 8).view(torch.float32),
        "i8": bits(5).view(torch.int8),
        "u8": bits(7, 1),
        "e4m3": bits(2, 3).view(torch.float8_e4m3fn),
        "i64": bits(16).view(torch.int64),
        "i32": bits(8).view(torch.int32),
        "scalar": torch.tensor(2.5),
        "count": torch.tensor(seed),
        "empty": torch.empty(0, 4),
        "turned": torch.arange(6.0).reshape(2, 3).T,
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    return TrainState(tensors, {"step": step, "seed": seed, "data": {"epoch": 0.5, "name": "你"}})


def same(one: TrainState, other: TrainState) -> bool:
    """Whether two states are equal to the bit, in the same order."""
    return (
        one.meta == other.meta
        and list(one.tensors) == list(other.tensors)
        and all(_same(one.tensors[name], other.tensors[name]) for name in one.tensors)
    )


def _same(one: Tensor, other: Tensor) -> bool:
    return (
        one.dtype == other.dtype and one.shape == other.shape and bytes_of(one) == bytes_of(other)
    )


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
