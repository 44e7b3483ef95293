"""Are two ways to compute a model the same model? Block by block, token by token.

At every place (embedding, blocks, norm, logits) the two states are compared:

    largest   max |a - b|         what a bit-for-bit promise is about
    mean      mean |a - b|
    cosine    the cosine of each token's two states, averaged over tokens: a few tokens, the first
              above all, have states a thousand times as large and would hide the others in one sum

What is promised decides what passes (``sides.must_be_equal``). The same codes in the same dtype:
every difference is 0 and every token the same. Rounded weights against their originals: a cosine
of at least ``cosine`` at every place, and the same choice for at least ``agreement`` of the tokens.
"""

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fourge.core.errors import ConfigError
from fourge.core.process import trim_heap
from fourge.evaluate.sides import Side, loaded, must_be_equal, prompt_of
from fourge.evaluate.trace import Trace, trace

TOP = 10


@dataclass(frozen=True, slots=True)
class Bounds:
    """What two models that cannot be equal must keep to."""

    cosine: float
    agreement: float  # a share of the tokens


@dataclass(frozen=True, slots=True)
class Difference:
    """Two models at one place."""

    place: str
    largest: float
    mean: float
    cosine: float


@dataclass(frozen=True, slots=True)
class Likely:
    """A token that may come first, and its logit."""

    id: int
    text: str
    logit: float


@dataclass(frozen=True, slots=True)
class Parity:
    """What was compared, and what came of it."""

    one: str
    other: str
    dtypes: tuple[str, str]
    prompt_tokens: int
    places: tuple[Difference, ...]
    top: tuple[tuple[Likely, ...], tuple[Likely, ...]]
    said: str  # by the first model
    tokens: int
    agreed: int  # of the tokens: where the second would have said the same
    parted: int | None  # the first place where it would not
    equal: bool  # whether they must be, bit for bit
    failures: tuple[str, ...]


def parity(
    one: Side, other: Side, prompt: str, *, tokens: int, bounds: Bounds, device: str = "auto"
) -> Parity:
    """Run both models, one in memory at a time, and compare.

    Raises:
        ConfigError: they are of different shapes, or read the prompt differently.
        FormatError: one cannot be loaded, or its logits are not finite.
    """
    ids = prompt_of(one, other, prompt, tokens)
    first = _traced(one, device, ids, tokens)
    second = _traced(other, device, ids, tokens, first.chosen)
    tokenizer, equal = one.opened.source.tokenizer(), must_be_equal(one, other)
    places = tuple(differences(first, second))
    same = [a == b for a, b in zip(first.chosen, second.chosen, strict=True)]
    return Parity(
        one.name, other.name, (one.dtype, other.dtype), len(ids), places,
        (likeliest(first, tokenizer), likeliest(second, tokenizer)),
        tokenizer.decode(first.chosen), tokens, sum(same),
        same.index(False) if False in same else None, equal,
        tuple(_unequal(places, same) if equal else _too_far(places, same, bounds)),
    )  # fmt: skip


def _traced(
    side: Side, device: str, ids: Sequence[int], tokens: int, told: Sequence[int] = ()
) -> Trace:
    with loaded(side, device) as model:
        found = trace(model, ids, tokens, told)
        del model
    gc.collect()  # transformers' modules hold each other; the next model needs their memory
    trim_heap()
    return found


def differences(one: Trace, other: Trace) -> list[Difference]:
    """Two models at every place.

    Raises:
        ConfigError: they do not have the same places, or not of the same width.
    """
    pairs = [(place, state, other.states.get(place)) for place, state in one.states.items()]
    pairs += [("logits", one.logits_TV, other.logits_TV), ("said", one.logits_NV, other.logits_NV)]
    if len(one.states) != len(other.states) or any(b is None or a.shape != b.shape
                                                   for _, a, b in pairs):  # fmt: skip
        raise ConfigError(
            "The two models are not of the same shape.",
            why="layer by layer there is nothing to compare",
            fix="compare forms of one model",
        )
    return [_difference(place, a, b) for place, a, b in pairs if b is not None]


def _difference(place: str, one: Tensor, other: Tensor) -> Difference:
    distance = (one - other).abs()
    cosine = torch.nn.functional.cosine_similarity(one.double(), other.double(), dim=-1).mean()
    return Difference(place, distance.max().item(), distance.mean().item(), cosine.item())


def likeliest(found: Trace, tokenizer: Any) -> tuple[Likely, ...]:
    """The tokens that may come first, the likeliest first."""
    logit_V, id_V = found.logits_TV[-1].topk(TOP)
    pairs = zip(id_V.tolist(), logit_V.tolist(), strict=True)
    return tuple(Likely(token, tokenizer.decode([token]), logit) for token, logit in pairs)


def _unequal(places: Sequence[Difference], same: Sequence[bool]) -> list[str]:
    found = [each for each in places if each.largest != 0]
    failures = [f"{found[0].place} is the first place that differs, by up to "
                f"{found[0].largest:.3g}; equal was promised"] if found else []  # fmt: skip
    return failures + ([] if all(same) else [f"token {same.index(False) + 1} is another one"])


def _too_far(places: Sequence[Difference], same: Sequence[bool], bounds: Bounds) -> list[str]:
    failures = [
        f"{each.place} has cosine {each.cosine:.4f}, below {bounds.cosine}"
        for each in places
        if not each.cosine >= bounds.cosine  # a NaN is below everything
    ]
    share = sum(same) / len(same)
    if share < bounds.agreement:
        failures.append(f"{share:.0%} of the tokens agree, fewer than {bounds.agreement:.0%}")
    return failures
