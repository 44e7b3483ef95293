import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourge.guard.trend import SLOW_S, Trend, followed, seconds_left

GIB = 1 << 30


def test_a_steady_fall_is_seen_by_both_rates() -> None:
    trend = followed(None, 0.0, 1000 * GIB)
    for number in range(1, 1000):
        trend = followed(trend, number / 10, 1000 * GIB - number * GIB // 10)
    assert trend.fast == pytest.approx(GIB, rel=0.01)
    assert trend.slow == pytest.approx(GIB, rel=0.02)


def test_a_burst_is_believed_at_once_by_the_fast_rate_alone() -> None:
    trend = followed(followed(None, 0.0, 10 * GIB), 0.25, 10 * GIB - GIB)
    assert trend.fast == pytest.approx(4 * GIB, rel=0.01)
    assert trend.slow < GIB / SLOW_S
    assert trend.rate == trend.fast


def test_memory_that_comes_back_is_no_fall() -> None:
    trend = followed(followed(None, 0.0, GIB), 1.0, 2 * GIB)
    assert trend.fast < 0
    assert trend.rate == trend.slow == 0.0


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 1 << 37)), min_size=1, max_size=30))
def test_a_fall_never_counts_for_more_than_its_size_over_the_constant(
    looks: list[tuple[float, int]],
) -> None:
    trend, now, highest = None, 0.0, 0
    for passed, headroom in looks:
        now += passed
        highest = max(highest, headroom)
        trend = followed(trend, now, headroom)
        assert trend.slow <= (highest - headroom) / SLOW_S + 1.0


def test_two_looks_at_one_moment_are_no_division_by_zero() -> None:
    trend = followed(followed(None, 5.0, GIB), 5.0, GIB // 2)
    assert trend == Trend(5.0, GIB // 2, GIB, 0.0)


def test_nothing_falls_for_ever() -> None:
    assert seconds_left(GIB, 0.0) == math.inf
    assert seconds_left(GIB, GIB / 2) == 2.0
    assert seconds_left(-5, 1.0) == 0.0
