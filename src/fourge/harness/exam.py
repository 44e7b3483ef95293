"""The gates of an experiment: asked in full of a file, in part of a model that is being trained.

A look asks a fixed sample of the same probes. So few items cannot show that a gate passes, but
they can show that one fails: more answers are wrong than the whole set may have, or more than
chance gives a model that is just good enough, or it is worse than the base by more than the
margin, beyond chance. A look passes if nothing of that kind speaks against the model; the full
gates have the last word.

Beyond ``collapse``, an attempt is not worth going on with: that share of answers is broken where
the base's were not, or says the new name where it does not belong.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from fourge.evaluate.check import Questions, narrowed
from fourge.evaluate.paired import beyond_chance, most_wrong
from fourge.evaluate.score import Names
from fourge.evaluate.verdict import SHARES, Gate, Results, Verdict, judge


@dataclass(frozen=True, slots=True)
class Exam:
    """What is asked, and what the base answered to it."""

    questions: Questions
    base: Results
    names: Names
    margin: float
    whole: Questions | None = None  # of which these are a part

    def judged(self, results: Results) -> Verdict:
        return judge(self.questions.probes, results, self.base, self.names, margin=self.margin)

    def part(self, questions: Questions) -> "Exam":
        """The same for fewer questions."""
        base = narrowed(self.base, self.questions, questions)
        return replace(self, questions=questions, base=base, whole=self.whole or self.questions)

    def against(self, verdict: Verdict) -> str:
        """The gates that are lost, judging by these items, in words; nothing if none is."""
        failed = [gate for gate in verdict.gates if gate.decision == "fail"]
        return _said([gate for gate in failed if self._is_lost(gate)])

    def _is_lost(self, gate: Gate) -> bool:
        if gate.paired is not None:
            return gate.paired.high < -gate.margin
        needed, wrong = SHARES[gate.name], round(gate.items * (1 - gate.tuned))
        probes = (self.whole or self.questions).probes
        in_all = sum(probe.set == gate.name for probe in probes)
        return wrong > most_wrong(in_all, needed) or beyond_chance(wrong, gate.items, needed)


def not_passed(verdict: Verdict) -> str:
    """The gates that do not pass, in words; nothing if all do."""
    return _said([gate for gate in verdict.gates if gate.decision != "pass"])


def collapse(verdict: Verdict, bound: float | None) -> str:
    """Why an attempt is not worth going on with; nothing if it is."""
    if bound is None:
        return ""
    gates = {gate.name: gate for gate in verdict.gates}
    broken, leak = gates["degeneration"], gates["leak"]
    worse = (broken.base or 0.0) - broken.tuned
    found = []
    if worse > bound:
        found.append(f"degeneration {worse:+.1%} against the base")
    if 1 - leak.tuned > bound:
        found.append(f"leak {1 - leak.tuned:.1%}")
    return "; ".join(found)


def numbers(verdict: Verdict) -> dict[str, list[Any]]:
    """Base, tuned and decision of each gate, for the record."""
    return {
        gate.name: [_finite(gate.base), _finite(gate.tuned), gate.decision]
        for gate in verdict.gates
    }


def rows(gates: Iterable[Gate]) -> list[dict[str, Any]]:
    """Every gate with all that is known of it, for the record."""
    about = "name", "items", "needed", "decision", "note"
    return [
        {key: getattr(gate, key) for key in about}
        | {"base": _finite(gate.base), "tuned": _finite(gate.tuned)}
        for gate in gates
    ]


def side_by_side(exam: Exam, results: Results) -> list[dict[str, str]]:
    """What was asked, and what base and tuned answered to it."""
    told = zip(exam.questions.probes, exam.base.said, results.said, strict=True)
    return [
        {"set": probe.set, "prompt": probe.prompt, "base": before.text, "tuned": after.text}
        for probe, before, after in told
    ]


def _said(gates: list[Gate]) -> str:
    return ", ".join(f"{gate.name} {_measured(gate)}, needs {gate.needed}" for gate in gates)


def _measured(gate: Gate) -> str:
    """A share, with what is said of it; of a comparison, what is said of it alone."""
    return gate.note if gate.paired else f"{gate.tuned:.1%} {gate.note}".strip()


def _finite(value: float | None) -> float | None:
    return round(value, 6) if value is not None and math.isfinite(value) else None
