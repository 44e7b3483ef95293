"""Gates before and after, with intervals."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fourge.report.gates import Z, verdict, wilson
from tests.report.example import event, gates
from tests.report.test_markup import read


@given(st.integers(1, 2000), st.data())
def test_wilson_solves_its_equation(items: int, data: st.DataObject) -> None:
    """Its ends are the shares p for which |k/n - p| = z sqrt(p (1 - p) / n)."""
    share = data.draw(st.integers(0, items)) / items
    low, high = wilson(share, items)
    assert 0 <= low <= share + 1e-12
    assert share - 1e-12 <= high <= 1
    for end in (low, high):
        if 0 < end < 1:
            assert abs(share - end) == pytest.approx(
                Z * math.sqrt(end * (1 - end) / items), rel=1e-6, abs=1e-6
            )


def test_z_is_of_ninety_percent() -> None:
    assert torch.distributions.Normal(0.0, 1.0).cdf(torch.tensor(Z, dtype=torch.float64)).item() \
        == pytest.approx(0.95)  # fmt: skip


def test_shares_have_intervals_and_other_numbers_none() -> None:
    text = verdict(event("verdict", gates=gates()), "v")
    assert "99.4% (97.4% to 99.9%)" in text or "99.4% (97.3% to 99.9%)" in text
    assert ">14.31<" in text
    found = read(text)
    assert found.tags.count("svg") == 1
    assert text.count(">identity<") == 2
    assert text.count(">text<") == 1, "a perplexity is not a share, and not in the chart"


def test_failures_are_shown_as_they_were_said() -> None:
    failures = [{"gate": "identity", "prompt": "你是誰？", "answer": "<b>我</b>", "why": "no name"}]
    text = verdict(event("verdict", stage="第一", gates=gates(), failures=failures), "v")
    assert "你是誰？" in text
    assert "&lt;b&gt;我&lt;/b&gt;" in text
    assert "Gates: 第一" in text


def test_a_verdict_in_short_is_shown_without_what_it_does_not_say() -> None:
    numbers = {"identity": [0.0, 0.99, "pass"], "text": [14.2, 14.3, "undecided"], "odd": 3}
    text = verdict(
        event("verdict", name="01-1", of="gates", reason="too few", numbers=numbers), "v"
    )
    assert "Gates: 01-1, gates" in text
    assert "<p>too few</p>" in text
    assert "<td>0.0%</td><td>99.0%</td>" in text
    assert read(text).text.count("decisionbasetuned") == 1, "no column that is empty"
    assert text.count("<svg") == 1


def test_a_share_of_unknown_items_is_a_point() -> None:
    text = verdict(event("verdict", numbers={"abilities": [0.5, 0.6, "pass"]}), "v")
    assert "50.0%</text>" in text
    assert ">0%</text>" not in text, "no interval is made up"


BROKEN: tuple[dict[str, object], ...] = (
    {},
    {"name": 3, "items": "x", "base": None, "tuned": "?"},
    {"items": 0, "tuned": 1.0},
    {"decision": '"><script>'},
)


@pytest.mark.parametrize("gate", BROKEN)
def test_a_gate_without_its_fields_is_a_row_all_the_same(gate: dict[str, object]) -> None:
    found = read(verdict(event("verdict", gates=[gate, 7], failures=3), "v"))
    assert found.tags.count("tr") == 2
    assert "script" not in found.tags
