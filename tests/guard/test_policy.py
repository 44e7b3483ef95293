from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fourge.guard.counters import Reading
from fourge.guard.policy import (
    FASTEST_FILL,
    LONGEST_PAUSE_S,
    SECOND_LOOK_S,
    SHORTEST_PAUSE_S,
    Limits,
    Look,
    State,
    Step,
    decide,
    default_floor,
    margins,
    pause_s,
)

GIB, MIB = 1 << 30, 1 << 20
LIMITS = Limits(floor=8 * GIB, limit=None, warn_below=2 * GIB, ask_below=GIB)
headrooms = st.integers(-10 * GIB, 120 * GIB)


def follow(looks: list[tuple[float, int | None]], limits: Limits = LIMITS) -> State:
    state = State()
    for at, headroom in looks:
        state = decide(state, Look(at, headroom), limits)
    return state


def states() -> st.SearchStrategy[State]:
    looks = st.lists(st.tuples(st.floats(0.001, 5), st.none() | headrooms), max_size=12)

    def walked(found: list[tuple[float, int | None]]) -> State:
        now, timed = 0.0, []
        for passed, headroom in found:
            now += passed
            timed.append((now, headroom))
        return follow(timed)

    return looks.map(walked)


def last(state: State) -> float:
    """When the last look was."""
    times = (state.since, state.blind_since or 0.0, state.trend.at if state.trend else 0.0)
    return max(times)


def test_headroom_is_to_the_nearer_line() -> None:
    reading = Reading(128 * GIB, 20 * GIB, 5 * GIB, 0, 64 * GIB, 50 * GIB)  # 14 GiB in the cgroup
    assert LIMITS.headroom(reading) == 6 * GIB
    assert replace(LIMITS, limit=110 * GIB).headroom(reading) == 2 * GIB
    assert replace(LIMITS, limit=127 * GIB).headroom(reading) == 6 * GIB


def test_plenty_is_calm_and_little_is_warned_asked_and_killed() -> None:
    assert follow([(0, 50 * GIB)]).step == Step.CALM
    assert follow([(0, 2 * GIB - 1)]).step == Step.WARNED
    assert follow([(0, GIB - 1)]).step == Step.WARNED
    assert follow([(0, GIB - 1), (0.25, GIB - 1)]).step == Step.ASKED
    assert follow([(0, 0)]).step == Step.WARNED
    assert follow([(0, 0), (0.001, 0)]).step == Step.KILLED


def test_one_bad_look_kills_nobody() -> None:
    state = follow([(0, 50 * GIB), (0.1, -GIB), (0.101, 50 * GIB), (0.2, -GIB)])
    assert state.step < Step.KILLED
    assert decide(state, Look(0.201, -GIB), LIMITS).step == Step.KILLED


def test_over_s_is_continuous_time_over_the_line() -> None:
    limits = replace(LIMITS, over_s=1.0)
    over: list[tuple[float, int | None]] = [(0.1 * n, -1) for n in range(10)]
    assert follow(over, limits).step == Step.ASKED
    assert follow([*over, (1.0, -1)], limits).step == Step.KILLED
    assert follow([*over, (0.95, 1), (1.0, -1)], limits).step == Step.ASKED


def test_asked_is_final_and_patience_ends() -> None:
    asked = follow([(0, GIB - 1), (0.25, GIB - 1)])
    later = decide(asked, Look(20.2, 90 * GIB), LIMITS)
    assert later.step == Step.ASKED
    late = decide(later, Look(20.25, 90 * GIB), LIMITS)
    assert late.step == Step.KILLED
    assert "within 20 s" in late.reason


def test_a_burst_that_ends_at_once_is_not_asked() -> None:
    state = follow(
        [(0, 5 * GIB), (0.1, GIB // 2), (0.3, GIB // 2), (0.34, 5 * GIB), (0.6, GIB - 1)]
    )
    assert state.step == Step.WARNED


def test_warned_is_taken_back_after_half_a_minute_with_distance() -> None:
    warned = follow([(0, 2 * GIB - 1)])
    assert decide(warned, Look(29.9, 50 * GIB), LIMITS).step == Step.WARNED
    assert decide(warned, Look(30.1, 50 * GIB), LIMITS).step == Step.CALM
    assert decide(warned, Look(30.1, 3 * GIB), LIMITS).step == Step.WARNED


def test_a_run_that_breathes_is_left_alone() -> None:
    state, now = State(), 0.0
    while now < 1800:
        phase = now % 1.0  # 3 GiB in 0.4 s, held, given back; 2.1 GiB stay
        taken = min(1.0, phase / 0.4) if phase < 0.8 else 0.0
        look = Look(now, int((5.1 - 3 * taken) * GIB))
        state = decide(state, look, LIMITS)
        assert state.step == Step.CALM, now
        now += max(0.05, pause_s(state, look))


def test_a_leak_is_warned_and_asked_in_time() -> None:
    state, now = State(), 0.0
    at: dict[Step, float] = {}
    while state.step < Step.ASKED:
        look = Look(now, int((50 - now) * GIB))  # 1 GiB a second
        state = decide(state, look, LIMITS)
        at.setdefault(state.step, 50 - now)
        now += pause_s(state, look)
    assert 5 < at[Step.WARNED] < 11
    assert 0.5 < at[Step.ASKED] < 2


def test_blindness_is_danger_after_two_looks() -> None:
    assert follow([(0, 50 * GIB), (0.1, None)]).step == Step.CALM
    blind = follow([(0, 50 * GIB), (0.1, None), (0.101, None)])
    assert (blind.step, blind.reason) == (Step.ASKED, "memory can no longer be read")
    assert follow([(0, 50 * GIB), (0.1, None), (0.2, 50 * GIB), (0.3, None)]).step == Step.CALM
    assert decide(blind, Look(20.2, None), LIMITS).step == Step.KILLED


def test_silence_is_danger_if_that_was_chosen() -> None:
    silent = Look(0.0, 50 * GIB, silent_s=9.0)
    assert decide(State(), silent, LIMITS).step == Step.CALM
    assert decide(State(), silent, replace(LIMITS, silent_s=10.0)).step == Step.CALM
    asked = decide(State(), silent, replace(LIMITS, silent_s=9.0))
    assert (asked.step, asked.reason) == (Step.ASKED, "it has been silent for 9 s")


@given(states(), headrooms, headrooms, st.floats(0.001, 30))
def test_less_headroom_is_never_milder(state: State, one: int, two: int, passed: float) -> None:
    at = last(state) + passed
    less, more = sorted((one, two))
    milder = decide(state, Look(at, more), LIMITS)
    harder = decide(state, Look(at, less), LIMITS)
    assert harder.step >= milder.step
    assert pause_s(harder, Look(at, less)) <= pause_s(milder, Look(at, more))


@example(decide(State(), Look(0.0, 100 * GIB), LIMITS), 40 * GIB, 1.0)
@given(states(), headrooms, st.floats(0.001, 30))
def test_the_pause_is_never_longer_than_an_eighth_of_what_memory_could_take(
    state: State, headroom: int, passed: float
) -> None:
    look = Look(last(state) + passed, headroom)
    after = decide(state, look, LIMITS)
    pause = pause_s(after, look)
    assert SECOND_LOOK_S <= pause <= LONGEST_PAUSE_S
    if pause > SHORTEST_PAUSE_S:
        assert after.trend is not None
        assert pause * FASTEST_FILL <= headroom + 1
        assert pause * after.trend.rate * 8 <= headroom + 1


@given(st.floats(0.1e9, 20e9), st.integers(0, 8 * GIB), st.floats(0, 1))
def test_the_fastest_fill_passes_the_line_by_less_than_300_mib(
    speed: float, before: int, phase: float
) -> None:
    """From standstill, at any moment between two looks; every look is late by 2 ms."""
    state = decide(State(), Look(0.0, before), LIMITS)
    now = pause_s(state, Look(0.0, before))
    begins = phase * now
    while state.step < Step.KILLED and now < 1e3:
        now += 0.002
        look = Look(now, before - int((now - begins) * speed))
        state = decide(state, look, replace(LIMITS, grace_s=1e9))
        now += pause_s(state, look)
    assert look.headroom is not None
    assert look.headroom > -300 * MIB


@pytest.mark.parametrize(
    ("capacity", "floor"), [(128, 8), (64, 8), (60, 6), (24, 2.4), (4, 0.5), (1, 0.5)]
)
def test_the_floor_by_rule(capacity: int, floor: float) -> None:
    assert default_floor(capacity * GIB) == pytest.approx(floor * GIB)


def test_margins_are_one_and_two_percent() -> None:
    assert margins(100 * GIB) == (2 * GIB, GIB)
