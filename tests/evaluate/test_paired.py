import math
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fourge.evaluate.paired import (
    Paired,
    beyond_chance,
    bootstrap,
    compare,
    enough_for,
    interval,
    items_needed,
    mcnemar,
    most_wrong,
    not_worse,
    numbers_needed,
)

counts = st.integers(0, 40)


def items(base_only: int, tuned_only: int, both: int) -> tuple[list[bool], list[bool]]:
    pairs = [(True, False)] * base_only + [(False, True)] * tuned_only + [(True, True)] * both
    return [one for one, _ in pairs], [two for _, two in pairs]


@given(counts, counts)
def test_mcnemar_is_scipys_exact_binomial_test(base_only: int, tuned_only: int) -> None:
    assume(base_only + tuned_only)
    stats = pytest.importorskip("scipy.stats")
    expected = stats.binomtest(base_only, base_only + tuned_only, 0.5).pvalue
    assert mcnemar(base_only, tuned_only) == pytest.approx(expected, rel=1e-9)


def test_mcnemar_is_the_share_of_all_outcomes_at_least_as_uneven() -> None:
    outcomes = list(product((0, 1), repeat=10))
    uneven = [each for each in outcomes if abs(sum(each) - 5) >= 3]
    assert mcnemar(2, 8) == len(uneven) / len(outcomes)
    assert mcnemar(0, 0) == 1


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """By brute force: every outcome of n pairs under a multinomial, with its probability."""
    for n, worse, better in ((30, 0.1, 0.1), (40, 0.05, 0.02), (50, 0.15, 0.05)):
        truth, below, above = better - worse, 0.0, 0.0
        for b in range(n + 1):
            for c in range(n + 1 - b):
                rest = n - b - c
                ways = math.comb(n, b) * math.comb(n - b, c)
                chance = ways * worse**b * better**c * (1 - worse - better) ** rest
                if chance > 1e-9:
                    low, high = interval(b, c, n)
                    below += chance * (high < truth)
                    above += chance * (low > truth)
        assert below < 0.075
        assert above < 0.075
        assert below + above > 0.03


@given(counts, counts, counts)
def test_the_interval_holds_the_estimate_and_is_symmetric(b: int, c: int, rest: int) -> None:
    assume(b + c + rest)
    n = b + c + rest
    low, high = interval(b, c, n)
    assert -1 <= low <= (c - b) / n + 1e-12
    assert (c - b) / n - 1e-12 <= high <= 1
    assert interval(c, b, n) == pytest.approx((-high, -low))


@pytest.mark.parametrize("n", [5, 20, 200, 2000])
def test_without_disagreement_the_doubt_is_that_of_the_number_of_items(n: int) -> None:
    z2 = 1.6448536269514722**2
    assert interval(0, 0, n)[0] == pytest.approx(-z2 / (n + z2))


def test_pairs_are_compared_in_pairs() -> None:
    paired = compare(*items(6, 2, 92))
    assert (paired.items, paired.disagree) == (100, 8)
    assert paired.difference == pytest.approx(-0.04)
    assert paired.p == mcnemar(6, 2)
    assert (paired.low, paired.high) == interval(6, 2, 100)
    with pytest.raises(ValueError, match="zip"):
        compare([True], [])
    assert not_worse(compare([], []), 0.05) == "undecided"


@pytest.mark.parametrize(
    ("base_only", "tuned_only", "both", "decision"),
    [(0, 0, 200, "pass"), (0, 0, 8, "undecided"), (2, 3, 300, "pass"), (20, 0, 80, "fail"),
     (3, 2, 95, "undecided"), (9, 0, 300, "fail"), (0, 30, 70, "pass"), (6, 0, 94, "fail")],
)  # fmt: skip
def test_not_worse_needs_the_whole_interval(
    base_only: int, tuned_only: int, both: int, decision: str
) -> None:
    margin = 0.03 if base_only == 9 else 0.05
    paired = compare(*items(base_only, tuned_only, both))
    assert not_worse(paired, margin) == decision


def test_a_small_sure_loss_within_the_margin_passes() -> None:
    paired = compare(*items(12, 0, 988))
    assert paired.p is not None
    assert paired.p < 0.01
    assert not_worse(paired, 0.05) == "pass"


def test_the_number_of_items_needed_is_that_of_the_power_formula() -> None:
    assert items_needed(Paired(100, 0, -1, 1, 1, 5), 0.01) == pytest.approx(3090, rel=0.01)
    assert items_needed(Paired(100, 0, -1, 1, 1, 3), 0.02) == pytest.approx(464, rel=0.01)
    nothing = items_needed(Paired(8, 0, -1, 1, 1, 0), 0.05)
    assert not_worse(compare(*items(0, 0, nothing + 1)), 0.05) == "pass"
    assert not_worse(compare(*items(0, 0, nothing - 1)), 0.05) == "undecided"


def test_enough_items_show_a_share_if_all_are_right() -> None:
    assert enough_for(0.99) == 299
    for share in (0.9, 0.95, 0.98):
        count = enough_for(share)
        assert share**count <= 0.05 < share ** (count - 1)


def test_the_bootstrap_agrees_with_scipys_and_with_itself() -> None:
    stats = pytest.importorskip("scipy.stats")
    base = [math.sin(number) for number in range(60)]
    tuned = [value + 0.02 + 0.1 * math.cos(3 * at) for at, value in enumerate(base)]
    ours = bootstrap(base, tuned)
    assert ours == bootstrap(base, tuned)
    gaps = [two - one for one, two in zip(base, tuned, strict=True)]
    assert ours.difference == pytest.approx(sum(gaps) / 60)
    found = stats.bootstrap((gaps,), lambda x, axis: x.mean(axis=axis), confidence_level=0.9,
                   method="percentile", rng=0).confidence_interval  # fmt: skip
    assert ours.low == pytest.approx(found.low, abs=3e-3)
    assert ours.high == pytest.approx(found.high, abs=3e-3)


def test_equal_numbers_leave_no_doubt_and_no_numbers_leave_all() -> None:
    assert bootstrap([1.0, 2.0], [1.0, 2.0]) == Paired(2, 0.0, 0.0, 0.0)
    assert not_worse(bootstrap([], []), 0.1) == "undecided"


def test_the_numbers_needed_would_have_narrowed_the_interval_enough() -> None:
    gaps = [0.3 * math.sin(7 * number) - 0.03 for number in range(40)]
    paired = bootstrap([0.0] * 40, gaps)
    assert not_worse(paired, 0.05) == "undecided"
    count = numbers_needed(paired, 0.05)
    spread = math.sqrt(sum((gap - paired.difference) ** 2 for gap in gaps) / 40)
    expected = 6.18 * spread**2 / (0.05 + paired.difference) ** 2
    assert count == pytest.approx(expected, rel=0.15)
    assert not_worse(bootstrap([0.0] * count, (gaps * count)[:count]), 0.05) == "pass"
    assert numbers_needed(bootstrap([], []), 0.05) == 1


def test_chance_is_the_binomial_s() -> None:
    assert [most_wrong(n, 0.95) for n in (0, 19, 20, 60, 150)] == [0, 0, 1, 3, 7]
    assert most_wrong(300, 0.99) == 3
    assert not beyond_chance(0, 60, 0.95)
    # P(X >= 6) = 0.079 and P(X >= 7) = 0.030 for X of Binomial(60, 0.05), by scipy.stats.binom.sf
    assert not beyond_chance(6, 60, 0.95)
    assert beyond_chance(7, 60, 0.95)
    # P(X >= 2) = 0.121 and P(X >= 3) = 0.022 for X of Binomial(60, 0.01)
    assert not beyond_chance(2, 60, 0.99)
    assert beyond_chance(3, 60, 0.99)
