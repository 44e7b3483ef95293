import math
from dataclasses import replace

import pytest

from fourge.evaluate.check import Questions
from fourge.evaluate.paired import Decision, Paired
from fourge.evaluate.probes import Probe
from fourge.evaluate.score import Names
from fourge.evaluate.verdict import Gate, Results, Verdict
from fourge.harness.exam import Exam, collapse, not_passed, numbers, rows, side_by_side
from tests.harness.experiment_samples import PROBES, said_by


def verdict(**gates: tuple[float, float, Decision]) -> Verdict:
    rows = [Gate(name, 9, base, tuned, ">= 98%", decision, "")
            for name, (base, tuned, decision) in gates.items()]  # fmt: skip
    return Verdict(tuple(rows), ())


def exam_of(items: int, probes: tuple[Probe, ...] = ()) -> Exam:
    """An exam of so many items of one set, or a part of one of these probes."""
    one = Questions(probes[:items], (), {})
    whole = Questions(probes, (), {})
    return Exam(one, Results((), ()), Names("Ada"), 0.05, whole if probes else None)


def test_an_undecided_gate_speaks_for_nothing_and_against_nothing() -> None:
    found = verdict(identity=(0.0, 1.0, "undecided"), leak=(1.0, 1.0, "pass"))
    assert exam_of(9).against(found) == ""
    assert not_passed(found) == "identity 100.0%, needs >= 98%"
    failed = verdict(identity=(0.0, 0.5, "fail"), leak=(1.0, 0.5, "fail"))
    assert exam_of(9).against(failed) == "identity 50.0%, needs >= 98%, leak 50.0%, needs >= 98%"


def test_a_comparison_that_is_lost_by_chance_does_not_speak_against_a_model() -> None:
    one = verdict(abilities=(0.5, 0.4, "fail"))
    (gate,) = one.gates
    for high, speaks in ((0.1, False), (-0.04, False), (-0.06, True)):  # the margin allows 5 points
        paired = Paired(10, -0.1, -0.3, high, 0.5, 3)
        lost = replace(gate, paired=paired, note="-10%", margin=0.05)
        found = replace(one, gates=(lost,))
        assert bool(exam_of(9).against(found)) == speaks
        assert not_passed(found) == "abilities -10%, needs >= 98%"


@pytest.mark.parametrize(
    ("wrong", "items", "of", "speaks"),
    [
        (4, 60, 150, False),  # chance, and 7 of the 150 may be wrong
        (6, 60, 150, False),
        (7, 60, 150, True),  # a model with 5 % wrong has that in 3 of 100 samples
        (8, 60, 150, True),
        (3, 60, 60, False),
        (4, 60, 60, True),  # the whole set: no chance is left
        (8, 140, 150, True),  # more than the whole set may have
    ],
)
def test_a_share_speaks_against_a_model_beyond_chance_or_beyond_the_whole_set(
    wrong: int, items: int, of: int, speaks: bool
) -> None:
    probes = tuple(Probe("identity", "en", "direct", (("user", f"{n}?"),)) for n in range(of))
    right = (items - wrong) / items
    decision: Decision = "pass" if right >= 0.95 else "fail"
    gate = Gate("identity", items, 0.0, right, ">= 95%", decision, "")
    assert bool(exam_of(items, probes).against(Verdict((gate,), ()))) == speaks


@pytest.mark.parametrize(
    ("broken", "leak", "bound", "said"),
    [
        ((0.9, 0.7), 1.0, 0.25, ""),
        ((0.9, 0.6), 1.0, 0.25, "degeneration +30.0% against the base"),
        ((0.3, 0.3), 1.0, 0.25, ""),  # a weak base is no collapse
        ((0.9, 0.9), 0.75, 0.25, ""),
        ((0.9, 0.9), 0.7, 0.25, "leak 30.0%"),
        ((0.9, 0.0), 0.0, None, ""),
    ],
)
def test_a_collapse_is_far_beyond_the_base(
    broken: tuple[float, float], leak: float, bound: float | None, said: str
) -> None:
    found = verdict(degeneration=(*broken, "fail"), leak=(1.0, leak, "fail"))
    assert collapse(found, bound) == said


def test_numbers_can_be_written_as_json() -> None:
    found = verdict(text=(12.3456789, math.inf, "fail"))
    assert numbers(found) == {"text": [12.345679, None, "fail"]}


def test_a_part_of_an_exam_has_the_bases_answers_to_that_part() -> None:
    questions = Questions(PROBES, (), {})
    exam = Exam(questions, said_by("untaught", questions), Names("Ada"), 0.05)
    few = Questions(PROBES[4:6], (), {})
    part = exam.part(few)
    assert part.base.said == exam.base.said[4:6]
    (leak,) = [gate for gate in part.judged(said_by("good", few)).gates if gate.name == "leak"]
    assert (leak.items, leak.base, leak.tuned) == (2, 1.0, 1.0)


def test_every_gate_is_recorded_with_its_items_and_what_is_said_of_it() -> None:
    found = verdict(text=(12.3456789, math.inf, "fail"))
    (row,) = rows(found.gates)
    assert row == {"name": "text", "items": 9, "needed": ">= 98%", "decision": "fail", "note": "",
                   "base": 12.345679, "tuned": None}  # fmt: skip


def test_answers_stand_side_by_side() -> None:
    questions = Questions(PROBES, (), {})
    exam = Exam(questions, said_by("untaught", questions), Names("Ada"), 0.05)
    told = side_by_side(exam, said_by("good", questions))
    assert [row["prompt"] for row in told] == [probe.prompt for probe in PROBES]
    assert any("Ada" in row["tuned"] and "Ada" not in row["base"] for row in told)
