"""The learning rate over a run: its ends, its shape, and that it is a function of the step."""

from itertools import pairwise
from math import cos, pi
from typing import get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fourge.core.errors import ConfigError
from fourge.optim.schedule import Schedule, ScheduleName, warmup_steps

NAMES: tuple[ScheduleName, ...] = get_args(ScheduleName)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    steps = draw(st.integers(1, 300))
    return Schedule(
        draw(st.sampled_from(NAMES)),
        steps,
        draw(st.integers(0, steps)),
        draw(st.sampled_from([0.0, 0.1, 1.0])),
    )


@given(schedules())
def test_no_step_is_spent_at_a_rate_of_zero_and_none_above_what_was_asked(plan: Schedule) -> None:
    factors = [plan.factor(step) for step in range(1, plan.steps + 1)]
    assert all(0 < factor <= 1 for factor in factors)
    assert max(factors) == 1.0


@given(schedules())
def test_it_rises_in_equal_steps_and_then_never_again(plan: Schedule) -> None:
    factors = [plan.factor(step) for step in range(1, plan.steps + 1)]
    rise, fall = factors[: plan.warmup], factors[plan.warmup :]
    assert rise == pytest.approx([(i + 1) / plan.warmup for i in range(plan.warmup)])
    assert all(one >= two for one, two in pairwise(fall))
    if fall:
        assert fall[0] == 1.0
        assert fall[-1] > plan.final or plan.final == 1.0 or plan.name == "constant"


@given(schedules())
def test_it_is_a_function_of_the_step_alone(plan: Schedule) -> None:
    forward = {step: plan.factor(step) for step in range(1, plan.steps + 1)}
    again = Schedule(plan.name, plan.steps, plan.warmup, plan.final)
    assert {step: again.factor(step) for step in reversed(forward)} == forward


@pytest.mark.parametrize("name", NAMES)
def test_one_step_more_would_reach_the_final_rate(name: ScheduleName) -> None:
    plan = Schedule(name, 40, 8, 0.25)
    assert plan.factor(41) == pytest.approx(1.0 if name == "constant" else 0.25)
    assert plan.factor(400) == plan.factor(41)


def test_the_shapes_are_a_level_a_line_and_half_a_cosine() -> None:
    for step in range(11, 111):
        done = (step - 11) / 100
        assert Schedule("constant", 110, 10).factor(step) == 1.0
        assert Schedule("linear", 110, 10, 0.1).factor(step) == pytest.approx(1 - 0.9 * done)
        expected = 0.1 + 0.9 * (1 + cos(pi * done)) / 2
        assert Schedule("cosine", 110, 10, 0.1).factor(step) == pytest.approx(expected)


def test_a_run_can_be_all_warm_up_or_a_single_step() -> None:
    assert [Schedule("linear", 4, 4).factor(step) for step in (1, 2, 3, 4)] == [0.25, 0.5, 0.75, 1]
    assert all(Schedule(name, 1).factor(1) == 1.0 for name in NAMES)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="no schedule 'cosin'"):
        Schedule("cosin", 10)  # type: ignore[arg-type]
    for warmup in (11, -1):
        with pytest.raises(ConfigError, match="warm-up do not fit into 10 steps"):
            Schedule("linear", 10, warmup)


@example(7, 100)
@example(56, 100)
@given(st.integers(0, 99), st.integers(1, 100_000))
def test_a_share_of_the_steps_is_rounded_up(percent: int, steps: int) -> None:
    """7 % of 100 steps are 7 steps, although 0.07 * 100 is a little more."""
    assert warmup_steps(percent / 100, steps) == -(-percent * steps // 100)


@given(st.integers(1, 10_000), st.integers(1, 100_000))
def test_a_number_of_steps_is_that_number(count: int, steps: int) -> None:
    assert warmup_steps(count, steps) == warmup_steps(float(count), steps) == count
