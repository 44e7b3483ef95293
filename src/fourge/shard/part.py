"""What of a parameter this rank has: FSDP2's cut, said as the optimizer wants it.

FSDP2 gives every rank ``ceil(rows / N)`` rows, the last ranks fewer. A parameter that is
copied (a vector) is whole everywhere; in a sum over the ranks only the first counts it.
"""

from math import prod

from torch import Tensor
from torch.distributed.tensor import DTensor

from fourge.optim.part import Part


def rows_of(count: int, rank: int, size: int) -> slice:
    """The rows of a rank, padded: the slice may end beyond the last."""
    each = -(-count // size)
    return slice(rank * each, (rank + 1) * each)


def local_of(tensor: Tensor) -> Tensor:
    """The part of a sharded parameter or gradient that this rank has."""
    assert isinstance(tensor, DTensor), "sharded by FSDP2"
    return tensor._local_tensor


def part_of(param: Tensor) -> Part:
    """A sharded or copied parameter as the optimizer sees it."""
    shape, grad = tuple(param.shape), param.grad
    here, rank, size = local_of(param), *_place(param)
    grad = None if grad is None else local_of(grad)
    if is_copied(param):
        return Part(here, grad, shape, counts=rank == 0)
    first = rows_of(shape[0], rank, size).start
    return Part(here, grad, shape, first * prod(shape[1:]))


def is_copied(param: Tensor) -> bool:
    """Whether every rank has all of it."""
    assert isinstance(param, DTensor), "sharded by FSDP2"
    return param.device_mesh.ndim == 2


def _place(param: Tensor) -> tuple[int, int]:
    assert isinstance(param, DTensor), "sharded by FSDP2"
    mesh = param.device_mesh
    return mesh.get_local_rank(0), mesh.size(0)
