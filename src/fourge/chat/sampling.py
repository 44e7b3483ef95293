"""Which token is said next: transformers' own processors, in transformers' own order.

    repetition penalty -> temperature -> top-k -> top-p -> min-p -> one draw

At temperature 0 the most likely token is taken and nothing but the penalty matters. The random
numbers of a turn come from a generator of its own, seeded with (seed, turn): a turn is the same
whatever was drawn before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fourge.core import rng
from fourge.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen. The defaults are greedy."""

    temperature: float = 0.0
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        ranges = {
            "temperature": (0.0 <= self.temperature < float("inf"), "0 or more"),
            "top_k": (self.top_k >= 0, "0 (all) or more"),
            "top_p": (0.0 < self.top_p <= 1.0, "more than 0, at most 1"),
            "min_p": (0.0 <= self.min_p <= 1.0, "from 0 to 1"),
            "repetition_penalty": (0.0 < self.repetition_penalty < float("inf"), "more than 0"),
        }
        for name, (is_good, wanted) in ranges.items():
            if not is_good:
                value = getattr(self, name)
                raise ConfigError(f"{name.replace('_', ' ')} is {value}; it must be {wanted}.")


def processors(sampling: Sampling) -> Any:
    """What happens, in transformers' own list, to the logits before one is chosen."""
    from transformers import (
        LogitsProcessorList,
        MinPLogitsWarper,
        RepetitionPenaltyLogitsProcessor,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    found = LogitsProcessorList()
    if sampling.repetition_penalty != 1.0:
        found.append(RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
    if sampling.temperature == 0.0:
        return found
    if sampling.temperature != 1.0:
        found.append(TemperatureLogitsWarper(sampling.temperature))
    if sampling.top_k:
        found.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1.0:
        found.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p > 0.0:
        found.append(MinPLogitsWarper(sampling.min_p))
    return found


class Chooser:
    """Chooses the tokens of one turn."""

    def __init__(self, sampling: Sampling, turn: int, device: torch.device) -> None:
        self._processors = processors(sampling)
        self._greedy = sampling.temperature == 0.0
        self._looks_back = sampling.repetition_penalty != 1.0
        self._draws = torch.Generator(device).manual_seed(seed_of(sampling.seed, turn))

    def choose(self, logits_V: Tensor, context: Sequence[int]) -> int:
        """The next token after these."""
        seen = list(context) if self._looks_back else []  # a long context is copied for a reason
        context_BT = torch.tensor([seen], dtype=torch.long, device=logits_V.device)
        scores_BV = self._processors(context_BT, logits_V.unsqueeze(0))
        if self._greedy:
            return int(scores_BV.argmax(-1))
        return int(torch.multinomial(scores_BV.softmax(-1), 1, generator=self._draws))


def seed_of(seed: int, turn: int) -> int:
    """The seed of one turn: any two numbers give one that looks like no other."""
    key = rng.key(seed, turn, "chat")
    return (key.first & 0x7FFFFFFF) << 32 | key.second & 0xFFFFFFFF
