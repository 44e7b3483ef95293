"""One rank of ``fourge bench shard``: a model of random weights, sharded, and two steps of it.

The second step is measured: the first compiles. Bytes are those of the loopback device, by the
kernel's own count, from barrier to barrier: what all ranks together sent, and anybody else who
used it meanwhile.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fourge.core.crew import ALONE, Crew
from fourge.core.process import peak_bytes, reset_peak, trim_heap
from fourge.data.batch import Batch, whole_batch
from fourge.model.shapes import random_model, shape_config
from fourge.optim.adamw import AdamW
from fourge.optim.part import Part, whole
from fourge.optim.schedule import Schedule
from fourge.shard.engine import sharded_
from fourge.shard.launched import launched
from fourge.shard.ranks import Ranks, joined
from fourge.train.loop import Engine, Plan, StepResult, steps
from fourge.train.prepare import prepare_, trained_parameters

LOOPBACK = "lo:"


def loopback_bytes() -> int:
    """Bytes that the loopback device has carried since the machine was started."""
    for line in Path("/proc/net/dev").read_text(encoding="ascii").splitlines():
        if line.strip().startswith(LOOPBACK):
            return int(line.split()[1])
    return 0


def measure(shape: str, scheme: Any, batch: int, tokens: int, crew: Crew) -> dict[str, Any]:
    """What a step of this rank took."""
    model = random_model(shape_config(shape), torch.bfloat16)
    named = prepare_(model, scheme=scheme)
    engine = Engine()
    part_of: Callable[[Tensor], Part] = whole
    if crew.size > 1:
        engine, part_of = sharded_(model, crew, compute=torch.float32)
        named = trained_parameters(model)
    optimizer = AdamW(named, lr=1e-5, crew=crew, part_of=part_of)
    optimizer.allocate()
    trim_heap()
    ids = torch.randint(1000, (batch, tokens), generator=torch.Generator().manual_seed(0))
    data = whole_batch(ids).part(crew.rank, crew.size)
    measured: dict[str, Any] = {}
    reset_peak()
    for number, result in enumerate(steps(model, optimizer, _plan(data, engine))):
        measured = _after(number, result, crew, measured)
    return measured


def _plan(data: Batch, engine: Engine) -> Plan:
    return Plan(batches=lambda step: [data], schedule=Schedule("constant", 2), engine=engine)


def _after(number: int, result: StepResult, crew: Crew, before: dict[str, Any]) -> dict[str, Any]:
    if isinstance(crew, Ranks):
        crew.meet()
    now = {"sent": loopback_bytes(), "at": time.perf_counter(), "loss": result.loss}
    if number == 0:
        reset_peak()
        return now
    peak = max(peak_bytes(), *result.peak.values())
    return {"peak": peak, "sent": (now["sent"] - before["sent"]) // crew.size,
            "seconds": result.seconds, "loss": result.loss}  # fmt: skip


def main() -> None:
    shape, scheme, batch, tokens = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    place = launched()
    if place is None:
        found = [measure(shape, scheme, batch, tokens, ALONE)]
    else:
        with joined(place, "cpu") as ranks:
            found = ranks.everyones(measure(shape, scheme, batch, tokens, ranks))
    if place is None or place.rank == 0:
        print(json.dumps(found), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
