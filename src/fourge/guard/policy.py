"""When to stop a run to save the machine. Decisions only: no clock, no file, no signal.

Everything is about one number, the *headroom*: the bytes that may still be taken before a line is
crossed. There are two lines. ``floor`` is what must stay left, of the machine or of the cgroup,
whichever has less. ``limit`` is what may be in use on the machine as a whole.

    calm    -> warned  headroom below 2 % of memory, or gone within 10 s at the lasting rate.
                       The trainer drops its caches and saves at the next micro-step.
    warned  -> asked   headroom below 1 %, or gone within 1.5 s, for a quarter of a second: a
                       burst that ends at once is not worth a run. SIGTERM: it saves and leaves.
    any     -> killed  headroom used up at two looks in a row (and for ``over_s``), or asked and
                       still there after ``grace_s``.

Warned goes back to calm, after half a minute and with some distance; asked never does. A source
that cannot be read at two looks in a row, or a trainer that fell silent, is asked too: not to
know is treated as danger.

The pause between two looks is the point of the whole. A fixed pause of 0.5 s lets a process that
fills 20 GB/s pass any line by 10 GB; here it shrinks with the headroom, so that memory could not
run out between two looks even if the fastest fill began right after the first.
"""

from dataclasses import dataclass, replace
from enum import IntEnum

from fourge.guard.counters import Reading
from fourge.guard.sizes import gib
from fourge.guard.trend import Trend, followed, seconds_left

GIB = 1 << 30
WARN_S = 10.0
ASK_S = 1.5
ASK_AFTER_S = 0.25
WARNED_FOR_S = 30.0
SHORTEST_PAUSE_S = 0.005
LONGEST_PAUSE_S = 0.25
SECOND_LOOK_S = 0.001  # at once: it rules out a slip of the counters, not a change of mind
LOOKS_UNTIL_EMPTY = 8
# Bytes per second that a burst is believed to reach before it has been seen: pages are cleared at
# about 5 GB/s per core, and allocators use several.
FASTEST_FILL = 20e9


class Step(IntEnum):
    """How far things have gone; more is worse."""

    CALM = 0
    WARNED = 1
    ASKED = 2
    KILLED = 3


@dataclass(frozen=True, slots=True)
class Limits:
    """The lines, in bytes, and the patience, in seconds. ``silent_s`` 0: silence is allowed."""

    floor: int
    limit: int | None
    warn_below: int
    ask_below: int
    over_s: float = 0.0
    grace_s: float = 20.0
    silent_s: float = 0.0

    def headroom(self, reading: Reading) -> int:
        """Bytes until the nearer line is crossed; negative beyond it."""
        above_floor = reading.left - self.floor
        if self.limit is None:
            return above_floor
        return min(above_floor, self.limit - (reading.total - reading.available))


@dataclass(frozen=True, slots=True)
class Look:
    """What is known at one moment; ``headroom`` None: a source could not be read."""

    at: float
    headroom: int | None
    silent_s: float = 0.0  # since the trainer's last sign of life


@dataclass(frozen=True, slots=True)
class State:
    """All that is remembered from one look to the next. ``since`` and the like are times."""

    step: Step = Step.CALM
    since: float = 0.0
    reason: str = ""
    trend: Trend | None = None
    over_since: float | None = None
    low_since: float | None = None
    blind_since: float | None = None


def default_floor(capacity: int) -> int:
    """8 GiB from 64 GiB on; a tenth of less, but at least half a GiB."""
    return 8 * GIB if capacity >= 64 * GIB else max(capacity // 10, GIB // 2)


def margins(capacity: int) -> tuple[int, int]:
    """(warn below, ask below) this headroom."""
    return capacity // 50, capacity // 100


def decide(state: State, look: Look, limits: Limits) -> State:
    """What one more look means. Less headroom never leads to a milder step."""
    seen = _seen(state, look, limits)
    step, reason = _step(state, seen, look, limits)
    return seen if step == state.step else replace(seen, step=step, since=look.at, reason=reason)


def pause_s(state: State, look: Look) -> float:
    """Seconds until the next look: never longer than memory could take to run out."""
    if state.step < Step.KILLED and look.at in (state.over_since, state.blind_since):
        return SECOND_LOOK_S
    if state.trend is None or look.headroom is None:
        return SHORTEST_PAUSE_S
    soonest = min(
        seconds_left(look.headroom, state.trend.rate) / LOOKS_UNTIL_EMPTY,
        seconds_left(look.headroom, FASTEST_FILL),
    )
    return min(LONGEST_PAUSE_S, max(SHORTEST_PAUSE_S, soonest))


def _seen(state: State, look: Look, limits: Limits) -> State:
    if look.headroom is None:  # what was seen before stands
        return replace(state, blind_since=_since(state.blind_since, look.at))
    trend = followed(state.trend, look.at, look.headroom)
    low = look.headroom < limits.ask_below or seconds_left(look.headroom, trend.slow) < ASK_S
    return replace(
        state,
        trend=trend,
        over_since=_since(state.over_since, look.at) if look.headroom <= 0 else None,
        low_since=_since(state.low_since, look.at) if low else None,
        blind_since=None,
    )


def _since(before: float | None, at: float) -> float:
    return at if before is None else before


def _step(state: State, seen: State, look: Look, limits: Limits) -> tuple[Step, str]:
    if state.step < Step.KILLED and (reason := _why_kill(state, look, limits)):
        return Step.KILLED, reason
    if state.step < Step.ASKED:
        if reason := _why_ask(state, seen, look, limits):
            return Step.ASKED, reason
        if reason := _why_warn(seen, look, limits):
            return Step.WARNED, reason
        if _calm_again(state, seen, look, limits):
            return Step.CALM, "there is room again"
    return state.step, ""


def _why_kill(state: State, look: Look, limits: Limits) -> str:
    if state.step == Step.ASKED and look.at - state.since >= limits.grace_s:
        return f"it was asked and did not leave within {limits.grace_s:g} s"
    over = look.headroom is not None and look.headroom <= 0 and state.over_since is not None
    if over and look.at - (state.over_since or 0.0) >= limits.over_s:
        return f"the line is crossed by {gib(-(look.headroom or 0))}"
    return ""


def _why_ask(state: State, seen: State, look: Look, limits: Limits) -> str:
    if state.blind_since is not None and look.headroom is None:
        return "memory can no longer be read"
    if limits.silent_s and look.silent_s >= limits.silent_s:
        return f"it has been silent for {look.silent_s:.0f} s"
    if seen.low_since is None or look.at - seen.low_since < ASK_AFTER_S:
        return ""
    return _room(seen, look)


def _why_warn(seen: State, look: Look, limits: Limits) -> str:
    if look.headroom is None or seen.trend is None:
        return ""
    soon = seconds_left(look.headroom, seen.trend.slow) < WARN_S
    return _room(seen, look) if soon or look.headroom < limits.warn_below else ""


def _calm_again(state: State, seen: State, look: Look, limits: Limits) -> bool:
    if look.headroom is None or seen.trend is None or look.at - state.since < WARNED_FOR_S:
        return False
    far = look.headroom > 1.5 * limits.warn_below
    return far and seconds_left(look.headroom, seen.trend.slow) > 1.5 * WARN_S


def _room(seen: State, look: Look) -> str:
    rate = seen.trend.slow if seen.trend else 0.0
    return f"room for {gib(look.headroom or 0)} more, falling by {gib(int(rate))} a second"
