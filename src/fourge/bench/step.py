"""``fourge bench step``: a whole training step against plain transformers.

The embedded model, 8 sequences of 96 tokens. Plain: float32 weights, transformers' own forward
and loss, ``torch.optim.AdamW(fused=True)``. Ours: NVFP4 weights in forward, bf16 master, int8
moments, gradients released in backward, and each way to recompute, in float32 as well; and once in
what a run here computes in, which may be bf16. Each side is a process of its own, and they take a
step in turn; memory is above what the process held before it loaded the model.
"""

import subprocess
from dataclasses import dataclass
from statistics import median
from typing import Any

from fourge.bench.sides import ask, start, stop
from fourge.core.units import size

NAMES = {
    "plain": "transformers float32, fused AdamW",
    "block": "fourge, recompute block",
    "light": "fourge, recompute light",
    "none": "fourge, recompute none",
    "auto": "fourge, light, compute_dtype auto",
}


@dataclass(frozen=True, slots=True)
class Side:
    """What one side took."""

    name: str
    seconds: float  # median
    peak: int  # bytes, the highest of all steps

    def row(self, yardstick: "Side") -> str:
        return (
            f"  {self.name:<36} {self.seconds:>7.2f} s {self.seconds / yardstick.seconds:>6.2f} x "
            f"{size(self.peak):>9} {self.peak / yardstick.peak:>6.2f} x"
        )


def measure(rounds: int, batch: int, length: int) -> list[Side]:
    """Plain first, then ours."""
    workers = {key: _worker(key, batch, length) for key in NAMES}
    reports: dict[str, list[dict[str, Any]]] = {key: [] for key in NAMES}
    try:
        for _ in range(rounds + 1):
            for key, worker in workers.items():
                reports[key].append(ask(worker, "step"))
    finally:
        for worker in workers.values():
            stop(worker)
    return [
        Side(NAMES[key], median(r["seconds"] for r in each[1:]), max(r["peak"] for r in each[1:]))
        for key, each in reports.items()
    ]


def _worker(key: str, batch: int, length: int) -> "subprocess.Popen[str]":
    return start("fourge.bench.step_worker", key, batch, length)
