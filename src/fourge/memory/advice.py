"""What to change so that a run fits, the cheapest first, each with what it saves and costs.

The cheapest change that lowers the peak is taken, then the cheapest that lowers what is the peak
now, and so on; every one is a new plan, so what it saves is what it saves here, after the others.
Prices are measured ones (docs/benchmarks.md) where there are any, and say so where there are none.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NoReturn

import torch

from fourge.core.errors import ConfigError
from fourge.memory.machine import Machine
from fourge.memory.plan import plan
from fourge.memory.wanted import Wanted

WORTH = 0.005  # of the peak; less is not worth a line
FEWEST_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Change:
    """``setting`` as it would stand in the run file."""

    setting: str
    saves: int
    price: str
    peak: int  # after it and those before it


@dataclass(frozen=True, slots=True)
class Advice:
    changes: tuple[Change, ...]
    short: int  # bytes that are still missing after all of them; 0 if the run fits then


@dataclass(frozen=True, slots=True)
class _Option:
    setting: str
    price: str
    after: Wanted


def advise(wanted: Wanted, machine: Machine, limit: int) -> Advice:
    """The changes after which a run fits into the limit, or all there are."""
    peak = plan(wanted, machine).peak
    changes: list[Change] = []
    while peak > limit:
        found = _cheapest(wanted, machine, peak)
        if found is None:
            break
        option, after = found
        changes.append(Change(option.setting, peak - after, option.price, after))
        wanted, peak = option.after, after
    return Advice(tuple(changes), max(0, peak - limit))


def _cheapest(wanted: Wanted, machine: Machine, peak: int) -> tuple[_Option, int] | None:
    """The first change that lowers the peak, which each one before may have moved, and to what."""
    for options in _ORDER:
        for option in options(wanted):
            after = plan(option.after, machine).peak
            if peak - after >= WORTH * peak:
                return option, after
    return None


def refuse_offload(place: str) -> NoReturn:
    """Raise: there is nothing to be won by it, or it is not offered."""
    if _one_pool():
        raise ConfigError(
            f"Offloading to {place} saves nothing here.",
            why="device and host share one pool of memory: the bytes would get another name",
            fix="leave it out; `fourge plan` lists what does make room",
        )
    raise ConfigError(
        f"Offloading to {place} is not offered.",
        why="weights and optimizer state are kept where they are used",
        fix="leave it out; `fourge plan` lists what does make room",
    )


def _one_pool() -> bool:
    if not torch.cuda.is_available():
        return True
    return bool(torch.cuda.get_device_properties(0).is_integrated)


def _moments_int8(wanted: Wanted) -> Iterator[_Option]:
    if wanted.moments == "fp32":
        price = "costs nothing measured (losses within 0.08 %)"
        yield _Option("optim.moments: int8", price, replace(wanted, moments="int8"))


def _release(wanted: Wanted) -> Iterator[_Option]:
    if not wanted.release:
        price = "clips tensor by tensor, and cannot accumulate"
        after = replace(wanted, release=True, accumulate=1)
        yield _Option("train.release: true", price, after)


def _recompute(wanted: Wanted) -> Iterator[_Option]:
    if wanted.recompute == "none":
        price = "1.01 x the time of none"
        yield _Option("train.recompute: light", price, replace(wanted, recompute="light"))
    elif wanted.recompute == "light":
        price = "1.23 x the time of light"
        yield _Option("train.recompute: block", price, replace(wanted, recompute="block"))


def _loss_chunk(wanted: Wanted) -> Iterator[_Option]:
    chunk = wanted.chunk // 2
    if chunk >= 16:
        price = "more passes over the head; time not measured"
        yield _Option(f"train.loss_chunk: {chunk}", price, replace(wanted, loss_chunk=chunk))


def _batch(wanted: Wanted) -> Iterator[_Option]:
    if wanted.batch > 1:
        half = wanted.batch // 2
        price = "noisier gradients, or more steps"
        yield _Option(f"train.batch: {half}", price, replace(wanted, batch=half))


def _master_bf16(wanted: Wanted) -> Iterator[_Option]:
    if wanted.master in ("fp32", "bf16+8"):
        price = "0.8 % more loss than fp32 after 100 steps, 8.5 % at worst early on"
        yield _Option("optim.master: bf16", price, replace(wanted, master="bf16"))


def _moments_nvfp4(wanted: Wanted) -> Iterator[_Option]:
    if wanted.moments == "int8":
        price = "4 bits a moment; not measured alone"
        yield _Option("optim.moments: nvfp4", price, replace(wanted, moments="nvfp4"))


def _tokens(wanted: Wanted) -> Iterator[_Option]:
    if wanted.tokens >= 2 * FEWEST_TOKENS:
        half = wanted.tokens // 2
        price = "longer rows lose their beginning"
        yield _Option(f"data.max_tokens: {half}", price, replace(wanted, tokens=half))


def _master_nvfp4(wanted: Wanted) -> Iterator[_Option]:
    if wanted.master != "nvfp4" and wanted.scheme != "none":
        price = "the 4-bit codes are the weights: 3.8 % more loss than fp32 after 30 steps"
        yield _Option("optim.master: nvfp4", price, replace(wanted, master="nvfp4"))


def _last_layers(wanted: Wanted) -> Iterator[_Option]:
    if wanted.trained_layers > 1:
        half = wanted.trained_layers // 2
        price = "the other layers, the embedding and the head are not trained"
        yield _Option(f"train.last_layers: {half}", price, replace(wanted, last_layers=half))


_ORDER: tuple[Callable[[Wanted], Iterator[_Option]], ...] = (
    _moments_int8, _release, _loss_chunk, _recompute, _batch, _master_bf16, _moments_nvfp4,
    _tokens, _master_nvfp4, _last_layers,
)  # fmt: skip
