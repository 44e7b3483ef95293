"""Timing on a shared machine: everything that is compared runs in turn, in one process.

A round runs each candidate once; the median over rounds is its time. What disturbs one disturbs
all, so ratios hold where seconds do not.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Part:
    """A yardstick and what is measured against it."""

    title: str
    yardstick: str
    seconds: dict[str, float]

    def speed(self, name: str) -> float:
        """How many times as fast as the yardstick."""
        return self.seconds[self.yardstick] / self.seconds[name]

    def table(self) -> str:
        lines = [self.title]
        for name, seconds in self.seconds.items():
            lines.append(f"  {name:<44} {seconds * 1e3:>10.2f} ms {self.speed(name):>9.3f} x")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "yardstick": self.yardstick,
            "seconds": self.seconds,
            "speed": {name: self.speed(name) for name in self.seconds},
        }


def interleaved(candidates: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each, after one round that is not counted."""
    for run in candidates.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, run in candidates.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(each) for name, each in times.items()}
