"""How fast headroom falls: at once, and lastingly.

Two smoothed rates, because two questions are asked. *When must I look again?* needs the fast one
(time constant 50 ms), which believes a burst at once. *Should the job be told?* needs the slow one
(20 s), which must not mistake a breath for a leak: a training step may take and return gigabytes.

The slow rate is the exponentially weighted mean of the fall. That mean has a closed form: with
``level`` the smoothed headroom,

    slow = (level - headroom) / 20 s

so a fall of A bytes, however sudden, never adds more than A / 20 s, and it decays once the fall
ends. "Empty within 10 s at the slow rate" therefore reads: less is left than half of what has just
fallen.
"""

import math
from dataclasses import dataclass

FAST_S = 0.05
SLOW_S = 20.0


@dataclass(frozen=True, slots=True)
class Trend:
    """The last headroom seen, in bytes, and what came before it in two numbers."""

    at: float  # seconds
    headroom: int
    level: float  # smoothed headroom
    fast: float  # bytes per second, of fall; negative while memory comes back

    @property
    def slow(self) -> float:
        return max(0.0, (self.level - self.headroom) / SLOW_S)

    @property
    def rate(self) -> float:
        """The greater of both."""
        return max(self.fast, self.slow)


def followed(trend: Trend | None, at: float, headroom: int) -> Trend:
    """The trend after one more look; the first look has none."""
    if trend is None:
        return Trend(at, headroom, float(headroom), 0.0)
    passed = at - trend.at
    if passed <= 0.0:
        return Trend(at, headroom, trend.level, trend.fast)
    falling = (trend.headroom - headroom) / passed
    return Trend(
        at,
        headroom,
        level=trend.level + _weight(passed, SLOW_S) * (headroom - trend.level),
        fast=trend.fast + _weight(passed, FAST_S) * (falling - trend.fast),
    )


def seconds_left(headroom: int, rate: float) -> float:
    """Until nothing is left, if the fall goes on."""
    return max(0, headroom) / rate if rate > 0.0 else math.inf


def _weight(passed: float, constant: float) -> float:
    return -math.expm1(-passed / constant)
