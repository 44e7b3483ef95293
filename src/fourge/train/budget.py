"""How much holding to the base model counts, such that the divergence stays within a budget.

A fixed weight is a guess: too small and the model drifts, too large and it learns nothing. With
a budget (nats per held position) the weight is a price that follows demand: it rises while the
divergence is above the budget and falls while it is below,

    weight <- weight * (kl / budget) ** 1/2        by at most 15 % a step, within 1/8 to 64 x

of the weight it started with, so that one odd batch cannot swing it.
"""

import math

STEP = 1.15
LEAST, MOST = 1 / 8, 64.0


def next_weight(weight: float, kl: float | None, budget: float | None, start: float) -> float:
    """The weight for the step after one whose divergence was ``kl``."""
    if budget is None or kl is None:
        return weight
    factor = math.sqrt(max(kl, 0.0) / budget)
    factor = min(STEP, max(1 / STEP, factor))
    return min(MOST * start, max(LEAST * start, weight * factor))
