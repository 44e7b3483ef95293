"""Trains tiny models for some steps: one rank of a crew, or, called from a test, alone."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from fourge.core.crew import ALONE, Crew
from fourge.data.batch import Batch
from fourge.optim.adamw import AdamW
from fourge.optim.part import Part, whole
from fourge.optim.schedule import Schedule
from fourge.shard.engine import sharded_
from fourge.shard.launched import launched
from fourge.shard.ranks import joined
from fourge.train.loop import Engine, Plan, StepResult, steps
from tests.train.samples import batch_of, prepared

LENGTHS = [(9, 17, 5, 12), (20, 6, 11, 8), (7, 7, 15, 10)]


def trained(
    settings: dict[str, Any], crew: Crew = ALONE
) -> tuple[list[StepResult], dict[str, Tensor]]:
    """What every step did, and the weights after the last."""
    model, named = prepared("qwen3", **settings["model"])
    engine = Engine()
    part_of: Callable[[Tensor], Part] = whole
    if crew.size > 1:
        engine, part_of = sharded_(model, crew, compute=torch.float32)
        named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    optimizer = AdamW(named, crew=crew, part_of=part_of, **settings["optim"])
    optimizer.allocate()

    def batches(step: int) -> list[Batch]:
        lengths = LENGTHS[step % 3]
        several = settings.get("accumulate", 1)
        return [batch_of(lengths, seed=several * step + i).part(crew.rank, crew.size)
                for i in range(several)]  # fmt: skip

    plan = Plan(
        batches=batches, schedule=Schedule("constant", settings["steps"]), engine=engine,
        release=settings.get("release", True),
    )  # fmt: skip
    results = list(steps(model, optimizer, plan))
    return results, {name: _full(param) for name, param, _ in optimizer.named()}


def _full(param: Tensor) -> Tensor:
    if not isinstance(param, DTensor):
        return param.detach()
    whole_one: Tensor = param.full_tensor()
    return whole_one.detach()


def main(settings_file: str, out: str) -> None:
    torch.set_num_threads(1)
    place = launched()
    assert place is not None, "started by torchrun"
    several = json.loads(Path(settings_file).read_text())
    with joined(place, "cpu") as ranks:
        found = {name: trained(settings, ranks) for name, settings in several.items()}
    if place.rank == 0:
        torch.save(found, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
