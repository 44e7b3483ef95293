"""The guard: its real policy in simulated time, against a leak and against a burst."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fourge.guard.policy import Limits, Look, State, Step, decide, margins, pause_s
from tests.docs.pictures import paper

GIB, MIB = 1 << 30, 1 << 20
CAPACITY = 128 * GIB
LIMITS = Limits(8 * GIB, None, *margins(CAPACITY))
SAVING_S = 4.0  # how long a run that was asked takes until it has saved and left
POLL_S = 0.5
COLOUR = {Step.WARNED: paper.ORANGE, Step.ASKED: paper.BLUE, Step.KILLED: paper.RED}


class Watch(NamedTuple):
    """Every look, and when each step was first taken."""

    looks: list[Look]
    steps: dict[Step, Look]


def watched(headroom: Callable[[float, float | None], float], last_s: float) -> Watch:
    """What the policy does while headroom, in bytes, goes its way.

    ``headroom`` is told the time, and when the job was asked to leave, if it was.
    """
    state, now = State(), 0.0
    looks: list[Look] = []
    steps: dict[Step, Look] = {}
    while now <= last_s and state.step < Step.KILLED:
        asked = steps.get(Step.ASKED)
        look = Look(now, int(headroom(now, asked.at if asked else None)))
        state = decide(state, look, LIMITS)
        looks.append(look)
        steps.setdefault(state.step, look)
        now += pause_s(state, look)
    return Watch(looks, steps)


def leak(now: float, asked: float | None) -> float:
    """20 GiB of room, 1 GiB a second less; asked, the run takes no more, saves and leaves."""
    if asked is None:
        return (20 - now) * GIB
    return (20 - asked if now < asked + SAVING_S else 90) * GIB


def burst(now: float, asked: float | None = None) -> float:
    """6 GiB of room that are gone in a second, from 0.4 s on; nobody listens."""
    return (6 - 6 * max(0.0, now - 0.4)) * GIB


def draw(figure: Any) -> None:
    slow, fast = figure.subplots(1, 2)
    _draw_leak(slow)
    _draw_burst(fast)


def _draw_leak(axes: Any) -> None:
    found = watched(leak, 30.0)
    axes.plot([look.at for look in found.looks], [_gib(look) for look in found.looks],
              color=paper.FAINT, zorder=0)  # fmt: skip
    for step, what in ((Step.WARNED, "warned: drop caches, save"),
                       (Step.ASKED, "asked: save and leave")):  # fmt: skip
        look = found.steps[step]
        axes.plot(look.at, _gib(look), "o", color=COLOUR[step],
                  label=f"{what}, {_gib(look):.1f} GiB left")  # fmt: skip
    axes.axhline(0, color=paper.INK, linewidth=0.8)
    paper.plain(axes, "A leak: 1 GiB a second", "seconds", "headroom, GiB")
    axes.set_ylim(-8, 22)
    axes.set_xlim(0, 28)
    paper.legend(axes, loc="lower left")


def _draw_burst(axes: Any) -> None:
    found = watched(burst, 3.0)
    killed = found.steps[Step.KILLED]
    late = next(POLL_S * n for n in range(100) if burst(POLL_S * n) <= 0)
    times = [0, 0.4, late]
    axes.plot(times, [burst(at) / GIB for at in times], color=paper.FAINT, zorder=0)
    looks = [(look.at, _gib(look)) for look in found.looks]
    name = f"the guard looks, {len(looks)} times"
    axes.plot(*zip(*looks, strict=True), "|", markersize=7, color=paper.BLUE, label=name)
    name = f"it kills, {-_gib(killed) * 1024:.0f} MiB past the line"
    axes.plot(killed.at, _gib(killed), "o", color=paper.RED, label=name)
    past = -burst(late) / GIB
    name = f"a look every {POLL_S} s kills, {past:.1f} GiB past it"
    axes.plot(late, -past, "X", markersize=8, color=paper.ORANGE, label=name)
    axes.axhline(0, color=paper.INK, linewidth=0.8)
    axes.set_ylim(-2.9, 6.5)
    paper.plain(axes, "A burst: 6 GiB in a second", "seconds", "headroom, GiB")
    paper.legend(axes, loc="lower left")


def _gib(look: Look) -> float:
    return (look.headroom or 0) / GIB
