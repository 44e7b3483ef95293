"""The learning rate at each step, as a factor of the one that was asked for.

``warmup`` steps rise linearly from 1/warmup of it; then it stays (constant), or falls towards
``final`` of it, in a line or along half a cosine, and would reach that with one step more: no
step is spent at a rate of zero. A pure function: a resumed run needs nothing but the step.
"""

from dataclasses import dataclass
from math import ceil, cos, pi
from typing import Literal

from fourge.core.errors import ConfigError

ScheduleName = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """``factor(step)`` for step 1 to ``steps``."""

    name: ScheduleName
    steps: int
    warmup: int = 0
    final: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in ("constant", "linear", "cosine"):
            raise ConfigError(f"There is no schedule {self.name!r}.",
                              fix="one of: constant, linear, cosine")  # fmt: skip
        if not 0 <= self.warmup <= self.steps:
            raise ConfigError(
                f"{self.warmup} steps of warm-up do not fit into {self.steps} steps.",
                fix="lower optim.warmup, or raise train.steps",
            )

    def factor(self, step: int) -> float:
        if step <= self.warmup:
            return step / self.warmup
        if self.name == "constant":
            return 1.0
        done = min(1.0, (step - self.warmup - 1) / max(1, self.steps - self.warmup))
        left = 1 - done if self.name == "linear" else (1 + cos(pi * done)) / 2
        return self.final + (1 - self.final) * left


def warmup_steps(warmup: float, steps: int) -> int:
    """Below 1 it is a share of the steps, rounded up; otherwise a number of them."""
    # 0.07 * 100 is a little more than 7.
    return ceil(round(warmup * steps, 6)) if warmup < 1 else int(warmup)
