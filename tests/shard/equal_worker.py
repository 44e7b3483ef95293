"""Updates a sharded model by gradients that are given whole, and writes all that it has."""

import sys

import torch
from torch import Tensor

from fourge.optim.adamw import AdamW
from fourge.shard.engine import sharded_
from fourge.shard.launched import launched
from fourge.shard.part import is_copied, local_of, part_of, rows_of
from fourge.shard.ranks import joined
from fourge.shard.saving import captured
from tests.train.samples import prepared

FORMATS = [("bf16", "int8"), ("bf16+8", "nvfp4"), ("fp32", "fp32")]
STEPS = 3


def optimizer_of(master: str, named: list[tuple[str, Tensor]], **more: object) -> AdamW:
    moments = dict(FORMATS)[master]
    return AdamW(named, lr=1e-3, clip=0.5, master=master, moments=moments, seed=3, **more)  # type: ignore[arg-type]


def gradient(name: str, step: int, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(step + 1000 * len(name) + sum(name.encode()))
    return torch.randn(shape, generator=generator).to(dtype)


def main(out: str) -> None:
    torch.set_num_threads(1)
    place = launched()
    assert place is not None, "started by torchrun"
    found = {}
    with joined(place, "cpu") as ranks:
        for master, _ in FORMATS:
            model, _ = prepared("qwen3", master=master)
            sharded_(model, ranks, compute=torch.float32)
            optimizer = optimizer_of(
                master, list(model.named_parameters()), crew=ranks, part_of=part_of
            )
            for step in range(STEPS):
                for name, param, _ in optimizer.named():
                    _give_(param, gradient(name, step, param.shape, param.dtype))
                optimizer.step()
                optimizer.zero_grad()
            tensors = captured(model, optimizer).items()
            found[master] = {n: t.full_tensor() if hasattr(t, "full_tensor") else t
                             for n, t in tensors}  # fmt: skip
    if place.rank == 0:
        torch.save(found, out)


def _give_(param: Tensor, whole: Tensor) -> None:
    from torch.distributed.tensor import DTensor

    assert isinstance(param, DTensor), "sharded"
    mesh = param.device_mesh
    rows = slice(None) if is_copied(param) else rows_of(
        len(whole), mesh.get_local_rank(0), mesh.size(0)
    )  # fmt: skip
    mine = whole[rows].contiguous()
    assert mine.shape == local_of(param).shape, "FSDP2 cuts as we do"
    param.grad = DTensor.from_local(mine, mesh, param.placements, run_check=False,
                                    shape=param.shape, stride=param.stride())  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
