import math
import re

import pytest

from fourge.evaluate.answers import Said
from fourge.evaluate.probes import Probe
from fourge.evaluate.score import Names
from fourge.evaluate.verdict import SHARES, Gate, Results, Verdict, gate_of_numbers, judge
from tests.evaluate.samples import probe, said

NAMES = Names("Al")
LOSSES = tuple(2 + 0.01 * number for number in range(40))


def asked(identity: int = 160, leak: int = 300, separation: int = 60) -> list[Probe]:
    probes = [probe("identity", f"who {n}?") for n in range(identity)]
    probes += [probe("leak", f"why {n}?") for n in range(leak)]
    probes += [probe("separation", f"am I {n}?") for n in range(separation)]
    return probes + [probe("abilities", f"what {n}?", accepted=("yes",)) for n in range(120)]


def perfect(probes: list[Probe]) -> list[Said]:
    texts = {"identity": "I am Al.", "abilities": "yes"}
    return [said(texts.get(each.set, "Because.")) for each in probes]


def gates(verdict: Verdict) -> dict[str, Gate]:
    return {gate.name: gate for gate in verdict.gates}


def test_a_perfect_model_passes_every_gate() -> None:
    probes = asked()
    results = Results(tuple(perfect(probes)), LOSSES)
    verdict = judge(probes, results, results, NAMES)
    assert list(gates(verdict)) == ["identity", "separation", "leak", "abilities", "degeneration",
                                    "text"]  # fmt: skip
    assert verdict.passed
    assert verdict.failures == ()


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [("identity", "I am ChatGPT.", "ChatGPT is claimed"), ("leak", "Al says so.", "Al is said"),
     ("separation", "You are Al.", "Al is said")],
)  # fmt: skip
def test_a_share_below_the_line_fails_and_is_shown(name: str, text: str, why: str) -> None:
    probes = asked()
    answers = perfect(probes)
    items = sum(each.set == name for each in probes)
    wrong = int((1 - SHARES[name]) * items) + 1  # one more than may be
    for at in [at for at, each in enumerate(probes) if each.set == name][:wrong]:
        answers[at] = said(text)
    base = Results(tuple(perfect(probes)), LOSSES)
    verdict = judge(probes, Results(tuple(answers), LOSSES), base, NAMES)
    assert gates(verdict)[name].decision == "fail"
    assert gates(verdict)[name].tuned == pytest.approx(1 - wrong / items)
    assert [failure.why for failure in verdict.failures] == [why] * wrong
    assert [gate.name for gate in verdict.gates if gate.decision != "pass"] == [name]
    assert not verdict.passed


def test_too_few_items_do_not_pass_and_say_how_many_would() -> None:
    probes = asked(identity=20, leak=20, separation=20)
    results = Results(tuple(perfect(probes)), LOSSES)
    found = gates(judge(probes, results, results, NAMES))
    assert found["identity"].decision == "undecided"
    assert found["identity"].note == "20 items cannot show 95%; 59 could"
    assert found["leak"].note.endswith("299 could")
    assert found["separation"].note.endswith("59 could")
    assert found["abilities"].decision == "pass"


def test_lost_abilities_fail_and_few_items_do_not_decide() -> None:
    probes = [probe("abilities", f"what {n}?", accepted=("yes",)) for n in range(100)]
    base = Results(tuple(perfect(probes)), LOSSES)
    for wrong, decision in ((0, "pass"), (1, "pass"), (4, "fail"), (20, "fail")):
        answers = [said("no")] * wrong + perfect(probes)[wrong:]
        found = gates(judge(probes, Results(tuple(answers), LOSSES), base, None, margin=0.05))
        assert found["abilities"].decision == decision, wrong
        assert found["abilities"].tuned == pytest.approx(1 - wrong / 100)
    noisy = [said("no")] * 5 + perfect(probes)[5:]
    other = perfect(probes)[:95] + [said("no")] * 5
    verdict = judge(probes, Results(tuple(noisy), LOSSES), Results(tuple(other), LOSSES), None)
    gate = gates(verdict)["abilities"]
    assert gate.decision == "undecided"
    assert "items would decide" in gate.note


def test_degeneration_is_counted_over_every_answer_and_against_the_base() -> None:
    probes = asked()
    base = Results(tuple(perfect(probes)), LOSSES)
    broken = [said("ha ha ha ha ha ha ha ha") if n % 10 == 0 else each
              for n, each in enumerate(base.said)]  # fmt: skip
    verdict = judge(probes, Results(tuple(broken), LOSSES), base, NAMES)
    gate = gates(verdict)["degeneration"]
    assert (gate.items, gate.decision) == (len(probes), "fail")
    assert {f.why for f in verdict.failures if f.gate == "degeneration"} == {"repeats"}
    same = judge(probes, Results(tuple(broken), LOSSES), Results(tuple(broken), LOSSES), NAMES)
    assert gates(same)["degeneration"].decision == "pass"


@pytest.mark.parametrize(
    ("added", "pieces", "decision"),
    [(0.0, 40, "pass"), (-0.5, 40, "pass"), (0.02, 40, "pass"), (0.2, 40, "fail"),
     (0.0, 6, "undecided")],
)  # fmt: skip
def test_text_is_judged_by_the_loss_piece_by_piece(
    added: float, pieces: int, decision: str
) -> None:
    base = Results((), LOSSES[:pieces])
    tuned = Results((), tuple(loss + added for loss in base.losses))
    gate = gates(judge([], tuned, base, None))["text"]
    assert gate.decision == decision
    assert gate.note.startswith(f"{added + 0.0:+.4f} nats")
    assert gate.needed == "<= base + 0.05 nats"
    assert ("about 20 items would decide" in gate.note) == (decision == "undecided")
    assert gate.tuned == pytest.approx(math.exp(sum(tuned.losses) / pieces))


def test_without_a_base_or_a_name_there_are_no_gates_about_them() -> None:
    probes = asked()
    results = Results(tuple(perfect(probes)), LOSSES)
    alone = judge(probes, results, None, NAMES)
    assert list(gates(alone)) == ["identity", "separation", "leak"]
    assert gates(alone)["identity"].base is None
    unnamed = judge([each for each in probes if each.set == "abilities"],
                    Results((said("yes"),) * 120, LOSSES), Results((said("yes"),) * 120, LOSSES),
                    None)  # fmt: skip
    assert list(gates(unnamed)) == ["abilities", "degeneration", "text"]


def test_numbers_are_better_when_they_are_greater_unless_it_is_said() -> None:
    base = [0.5 + 0.01 * number for number in range(40)]
    tuned = [number - 0.2 for number in base]
    worse = gate_of_numbers("f1", base, tuned, 0.1)
    assert (worse.decision, worse.needed) == ("fail", ">= base - 0.1")
    assert worse.note == "-0.2000 (-0.2000 to -0.2000)"
    assert (worse.base, worse.tuned) == pytest.approx((0.695, 0.495))
    better = gate_of_numbers("error", base, tuned, 0.1, lower_is_better=True)
    assert (better.decision, better.needed) == ("pass", "<= base + 0.1")
    assert better.note == worse.note


def test_noisy_numbers_do_not_decide_and_more_than_there_are_would() -> None:
    base = [math.sin(number) for number in range(40)]
    tuned = [number + 0.5 * math.cos(5 * at) + 0.02 for at, number in enumerate(base)]
    gate = gate_of_numbers("error", base, tuned, 0.05, lower_is_better=True)
    assert gate.decision == "undecided"
    change, least, most = (float(each) for each in re.findall(r"[-+][\d.]+", gate.note))
    assert least < change < most
    assert least < -0.05 < 0.05 < most
    count = re.search(r"about (\d+) items would decide", gate.note)
    assert count is not None
    assert int(count[1]) > 2 * gate.items
