"""A long curve keeps its extremes."""

from hypothesis import given
from hypothesis import strategies as st

from fourge.report.thin import is_long, means, spread, thinned

NUMBERS = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=400)


@given(NUMBERS, st.integers(1, 40))
def test_no_extreme_is_lost_and_few_points_stay(y: list[float], buckets: int) -> None:
    kept = thinned(y, buckets)
    shown = [y[at] for at in kept]
    assert (min(shown), max(shown)) == (min(y), max(y))
    assert (kept[0], kept[-1]) == (0, len(y) - 1)
    assert kept == sorted(set(kept))
    assert len(kept) <= 2 * buckets + 2
    assert (len(kept) < len(y)) <= is_long(y, buckets)


def test_a_single_spike_is_seen_in_its_own_place() -> None:
    y = [0.0] * 100_000
    y[77_777] = 5.0
    assert 77_777 in thinned(y)


@given(NUMBERS, st.integers(1, 40))
def test_means_lie_within_and_in_order(y: list[float], buckets: int) -> None:
    x, middle = means(range(len(y)), y, buckets)
    assert x == sorted(set(x))
    assert len(x) == min(buckets, len(y))
    slack = 1e-6 + 1e-9 * max(map(abs, y))
    assert min(y) - slack <= min(middle)
    assert max(middle) <= max(y) + slack


@given(st.integers(1, 5000), st.integers(2, 60))
def test_rows_of_a_table_are_spread_from_the_first_to_the_last(count: int, most: int) -> None:
    rows = spread(count, most)
    assert (rows[0], rows[-1]) == (0, count - 1)
    assert rows == sorted(set(rows))
    assert len(rows) == min(count, most)


def test_an_empty_curve_has_no_points() -> None:
    assert thinned([]) == []
    assert spread(0, 5) == []
    assert means([], [], 5) == ([], [])
