"""From answers to a verdict: one row a gate, with the numbers it rests on.

Two kinds of gate. An absolute one asks for a share of right answers (the new name where it
belongs and nowhere else); a relative one asks that the tuned model is not worse than its base by
more than a margin (what it could do before). Each has three endings: pass, fail, and undecided
where the items are too few to say either; how many would do is then said.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fourge.evaluate.answers import Said
from fourge.evaluate.degenerate import fault
from fourge.evaluate.paired import (
    Decision,
    Paired,
    bootstrap,
    compare,
    enough_for,
    items_needed,
    not_worse,
    numbers_needed,
)
from fourge.evaluate.probes import Probe
from fourge.evaluate.score import Names, failing

SHARES = {"identity": 0.95, "separation": 0.95, "leak": 0.99}
DEGENERATION_MARGIN = 0.02
LOSS_MARGIN = 0.05  # nats per token
_FEWEST_NUMBERS = 20  # a bootstrap of fewer is narrower than the truth


@dataclass(frozen=True, slots=True)
class Results:
    """What one model answered to the probes, and its loss on each piece of text."""

    said: tuple[Said, ...]
    losses: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """An answer that did not pass."""

    gate: str
    language: str
    prompt: str
    answer: str
    why: str


@dataclass(frozen=True, slots=True)
class Gate:
    """One row of the verdict."""

    name: str
    items: int
    base: float | None
    tuned: float
    needed: str
    decision: Decision
    note: str = ""
    paired: Paired | None = None
    margin: float = 0.0  # how much worse than the base it may be


@dataclass(frozen=True, slots=True)
class Verdict:
    """All gates."""

    gates: tuple[Gate, ...]
    failures: tuple[Failure, ...]

    @property
    def passed(self) -> bool:
        return all(gate.decision == "pass" for gate in self.gates)


def judge(
    probes: Sequence[Probe],
    tuned: Results,
    base: Results | None,
    names: Names | None,
    *,
    margin: float = 0.05,
) -> Verdict:
    """Every gate that can be decided from these answers.

    Without a name there are no gates about one; without a base none against it.
    """
    gates: list[Gate] = []
    failures: list[Failure] = []
    for name, share in SHARES.items():
        if names is not None:
            chosen = [at for at, probe in enumerate(probes) if probe.set == name]
            reasons = _reasons(probes, tuned, names, chosen)
            before = _reasons(probes, base, names, chosen) if base else None
            gates.append(_absolute(name, share, reasons, before))
            failures += _failures(name, probes, tuned, chosen, reasons)
    if base is not None:
        gates += [
            _abilities(probes, tuned, base, margin),
            _degeneration(probes, tuned, base),
            _text(tuned.losses, base.losses),
        ]
    everywhere = list(range(len(probes)))
    faults = [fault(probe, said) for probe, said in zip(probes, tuned.said, strict=True)]
    failures += _failures("degeneration", probes, tuned, everywhere, faults)
    return Verdict(tuple(gates), tuple(failures))


def _reasons(
    probes: Sequence[Probe], results: Results, names: Names | None, chosen: Sequence[int]
) -> list[str | None]:
    return [failing(probes[at], results.said[at], names) for at in chosen]


def _share(reasons: Sequence[str | None]) -> float:
    return sum(reason is None for reason in reasons) / len(reasons) if reasons else 0.0


def _absolute(
    name: str, needed: float, tuned: Sequence[str | None], base: Sequence[str | None] | None
) -> Gate:
    share, count = _share(tuned), len(tuned)
    decision: Decision = "pass"
    note = ""
    if share < needed:
        decision = "fail"
    elif too_few := _too_few(count, needed):
        decision, note = "undecided", too_few
    before = None if base is None else _share(base)
    return Gate(name, count, before, share, f">= {needed:.0%}", decision, note)


def too_few_for(gate: Gate) -> str:
    """Why an absolute gate can never be passed, whatever is answered; nothing if it can."""
    needed = SHARES.get(gate.name)
    return "" if needed is None else _too_few(gate.items, needed)


def _too_few(count: int, needed: float) -> str:
    enough = enough_for(needed)
    return "" if count >= enough else f"{count} items cannot show {needed:.0%}; {enough} could"


def _abilities(probes: Sequence[Probe], tuned: Results, base: Results, margin: float) -> Gate:
    chosen = [at for at, probe in enumerate(probes) if probe.set == "abilities"]
    one = [reason is None for reason in _reasons(probes, base, None, chosen)]
    two = [reason is None for reason in _reasons(probes, tuned, None, chosen)]
    return gate_of_rights("abilities", one, two, margin)


def _degeneration(probes: Sequence[Probe], tuned: Results, base: Results) -> Gate:
    one = [fault(probe, said) is None for probe, said in zip(probes, base.said, strict=True)]
    two = [fault(probe, said) is None for probe, said in zip(probes, tuned.said, strict=True)]
    return gate_of_rights("degeneration", one, two, DEGENERATION_MARGIN)


def gate_of_rights(name: str, base: Sequence[bool], tuned: Sequence[bool], margin: float) -> Gate:
    """Items that are right or wrong: the tuned model's share against its base's."""
    paired = compare(base, tuned)
    decision = not_worse(paired, margin)
    note = f"{paired.difference:+.1%} ({paired.low:+.1%} to {paired.high:+.1%}), p = {paired.p:.2g}"
    if decision == "undecided":
        note += f"; about {items_needed(paired, margin)} items would decide"
    shares = _mean(base), _mean(tuned)
    return Gate(name, len(base), *shares, f">= base - {margin:.0%}", decision, note, paired, margin)


def gate_of_numbers(
    name: str,
    base: Sequence[float],
    tuned: Sequence[float],
    margin: float,
    *,
    lower_is_better: bool = False,
    unit: str = "",
) -> Gate:
    """Items with a number each: the tuned model's mean against its base's."""
    sign = -1 if lower_is_better else 1
    paired = bootstrap([sign * each for each in base], [sign * each for each in tuned])
    decision = not_worse(paired, margin)
    if decision == "pass" and paired.items < _FEWEST_NUMBERS:
        decision = "undecided"
    change = sign * paired.difference + 0.0  # never -0
    least, most = sorted((sign * paired.low + 0.0, sign * paired.high + 0.0))
    note = f"{change:+.4f}{unit} ({least:+.4f} to {most:+.4f})"
    if decision == "undecided":
        note += f"; about {max(_FEWEST_NUMBERS, numbers_needed(paired, margin))} items would decide"
    needed = f"<= base + {margin:g}{unit}" if lower_is_better else f">= base - {margin:g}{unit}"
    means = _mean(base), _mean(tuned)
    return Gate(name, paired.items, *means, needed, decision, note, paired, margin)


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / max(1, len(numbers))


def _text(tuned: Sequence[float], base: Sequence[float]) -> Gate:
    """Judged by the loss, shown as perplexity."""
    gate = gate_of_numbers("text", base, tuned, LOSS_MARGIN, lower_is_better=True, unit=" nats")
    return replace(gate, base=math.exp(_mean(base)), tuned=math.exp(_mean(tuned)))


def _failures(
    gate: str,
    probes: Sequence[Probe],
    results: Results,
    chosen: Sequence[int],
    reasons: Sequence[str | None],
) -> list[Failure]:
    return [
        Failure(gate, probes[at].language, probes[at].prompt, results.said[at].text, why)
        for at, why in zip(chosen, reasons, strict=True)
        if why is not None
    ]
