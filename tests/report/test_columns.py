"""The numbers of many rows."""

import math

from hypothesis import given
from hypothesis import strategies as st

from fourge.report.columns import Columns


def filled(*rows: dict[str, float]) -> Columns:
    columns = Columns("step")
    for row in rows:
        columns.add(row)
    return columns


def test_a_number_that_is_missing_is_a_gap() -> None:
    columns = filled({"step": 1, "a": 5}, {"step": 2, "b": 7}, {"step": 3, "a": 6})
    assert columns.points("step", "a") == ([1, 3], [5, 6])
    assert columns.points("step", "b") == ([2], [7])
    assert columns.points("step", "nobody") == ([], [])


def test_a_step_that_is_done_again_replaces_the_old_one_and_all_after_it() -> None:
    columns = filled(*({"step": at, "a": at} for at in (1.0, 2.0, 3.0, 4.0)), {"step": 3, "a": 30})
    assert columns.points("step", "a") == ([1, 2, 3], [1, 2, 30])
    assert columns.repeated == 2


def test_only_columns_with_a_number_are_named() -> None:
    assert set(filled({"step": 1, "a": math.nan, "b": 2}).names()) == {"step", "b"}


@given(st.lists(st.integers(0, 50), max_size=60))
def test_keys_always_increase(keys: list[int]) -> None:
    columns = filled(*({"step": float(key), "a": float(at)} for at, key in enumerate(keys)))
    steps = list(columns["step"])
    assert steps == sorted(set(steps))
    assert len(columns) + columns.repeated == len(keys)
    assert len(columns["a"]) == len(columns)
    assert not keys or steps[-1] == keys[-1]
