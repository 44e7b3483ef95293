"""Base against tuned on the same items: is the tuned model worse, and could we know?

For right-or-wrong items only the pairs that disagree carry news. With n items, b that the base
alone gets right and c that the tuned model alone gets right, the difference is (c - b) / n.

* ``mcnemar``: were base and tuned equal, b would be Binomial(b + c, 1/2). The exact two-sided p.
* ``difference``: an interval for (c - b) / n by Tango's score method. The difference d is in it if

      |c - b - n d| <= z sqrt(n (2 q + d (1 - d)))

  where q is the likeliest P(base alone right) under d. Unlike intervals from the variance of
  the sample it does not shrink to a point when no pair disagrees: 20 items without one leave
  12 points in doubt, 200 leave 1.3.
* ``bootstrap``: for numbers per item (a loss), the mean difference with items drawn again and
  again from a fixed seed.

Not worse means the whole interval lies above -margin (one side, 95 %). If it does not, and the
estimate itself is above -margin, the items are too few: the number that would do at this rate of
disagreement, with 80 % power, is 6.18 * (b + c) / n / margin^2 (and never fewer than would do
without any disagreement, z^2 (1 - margin) / margin). For numbers with a spread s of their gaps, if
the difference is what it seems, it is 6.18 s^2 / (margin + difference)^2.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Decision = Literal["pass", "fail", "undecided"]
Z = 1.6448536269514722  # 95 % on one side
_POWER = (Z + 0.8416212335729143) ** 2  # 80 %
_DRAWS = 2000


@dataclass(frozen=True, slots=True)
class Paired:
    """A difference tuned - base, with its interval of 90 % (95 % on each side)."""

    items: int
    difference: float
    low: float
    high: float
    p: float | None = None  # of McNemar's test
    disagree: int = 0


def mcnemar(base_only: int, tuned_only: int) -> float:
    """The exact two-sided p of these disagreements if base and tuned were equal."""
    count = base_only + tuned_only
    tail = sum(math.comb(count, k) for k in range(min(base_only, tuned_only) + 1))
    return min(1.0, 2 * tail / (1 << count))


def compare(base: Sequence[bool], tuned: Sequence[bool]) -> Paired:
    """Right-or-wrong items, in pairs."""
    pairs = list(zip(base, tuned, strict=True))
    base_only = sum(one and not two for one, two in pairs)
    tuned_only = sum(two and not one for one, two in pairs)
    count = len(pairs)
    if not count:
        return Paired(0, 0.0, -1.0, 1.0, 1.0)
    low, high = interval(base_only, tuned_only, count)
    difference = (tuned_only - base_only) / count
    p = mcnemar(base_only, tuned_only)
    return Paired(count, difference, low, high, p, base_only + tuned_only)


def interval(base_only: int, tuned_only: int, count: int) -> tuple[float, float]:
    """Both ends of the score interval of (tuned_only - base_only) / count."""
    low = _low(base_only, tuned_only, count)
    return low, -_low(tuned_only, base_only, count)


def _low(base_only: int, tuned_only: int, count: int) -> float:
    """The least difference that these counts do not refuse, by bisection."""
    inside, outside = (tuned_only - base_only) / count, -1.0
    for _ in range(60):
        middle = (inside + outside) / 2
        if _score(base_only, tuned_only, count, middle) <= Z:
            inside = middle
        else:
            outside = middle
    return inside


def _score(base_only: int, tuned_only: int, count: int, difference: float) -> float:
    """How many standard errors the counts lie above a difference."""
    first = -tuned_only - base_only + (2 * count - tuned_only + base_only) * difference
    last = -base_only * difference * (1 - difference)
    q = (math.sqrt(max(0.0, first**2 - 8 * count * last)) - first) / (4 * count)
    variance = count * (2 * q + difference * (1 - difference))
    above = tuned_only - base_only - count * difference
    if variance <= 0:
        return math.inf if above > 0 else 0.0
    return above / math.sqrt(variance)


def bootstrap(base: Sequence[float], tuned: Sequence[float], seed: int = 0) -> Paired:
    """Numbers per item: the mean of tuned - base, and where it lies in 90 % of the draws."""
    gaps = [two - one for one, two in zip(base, tuned, strict=True)]
    if not gaps:
        return Paired(0, 0.0, -math.inf, math.inf)
    generator = random.Random(f"bootstrap {seed}")
    count = len(gaps)
    means = sorted(
        sum(gaps[int(generator.random() * count)] for _ in range(count)) / count
        for _ in range(_DRAWS)
    )
    low, high = means[_DRAWS // 20], means[-1 - _DRAWS // 20]
    return Paired(count, sum(gaps) / count, low, high)


def not_worse(paired: Paired, margin: float) -> Decision:
    """Whether the tuned model is at most ``margin`` below the base."""
    if paired.low > -margin:
        return "pass"
    if paired.difference <= -margin or paired.high < 0:
        return "fail"
    return "undecided"


def items_needed(paired: Paired, margin: float) -> int:
    """How many items would decide at this rate of disagreement; without any, how many agreeing."""
    agreeing = Z**2 * (1 - margin) / margin
    return math.ceil(max(agreeing, _POWER * paired.disagree / max(1, paired.items) / margin**2))


def numbers_needed(paired: Paired, margin: float) -> int:
    """The same for numbers per item; half of their interval is Z * spread / sqrt(items)."""
    if not paired.items:
        return 1
    spread = (paired.high - paired.low) / 2 / Z * math.sqrt(paired.items)
    return math.ceil(_POWER * (spread / (margin + paired.difference)) ** 2)


def enough_for(share: float) -> int:
    """How many items, all of them right, show with 95 % that a share of all would be."""
    return math.ceil(math.log(0.05) / math.log(share))


def most_wrong(count: int, share: float) -> int:
    """How many of so many items may be wrong where a share must be right."""
    return math.floor(count * (1 - share) + 1e-9)


def beyond_chance(wrong: int, count: int, share: float) -> bool:
    """Whether a model that gets that share right is hardly ever (5 %) wrong so often."""
    fewer = sum(math.comb(count, k) * (1 - share) ** k * share ** (count - k) for k in range(wrong))
    return 1 - fewer < 0.05
