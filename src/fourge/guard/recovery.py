"""The next job waits for memory, not for an exit.

After a kill a driver may need minutes to give memory back, so that a job which starts at once
starts into the same wall. A guard that stopped its command therefore leaves only when memory has
measurably recovered: seven eighths of what had gone are back, and less than 2 GiB are missing. Or
when nothing changes any more: another process may have taken it, and waiting will not help. And a
guard starts nothing while there is not even the room at which it would ask the command to leave.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from fourge.guard.bell import PASSED_ON
from fourge.guard.counters import CounterError, Reading
from fourge.guard.policy import GIB
from fourge.guard.post import Post
from fourge.guard.sizes import gib

_LOOK_EVERY_S = 0.1
_STEADY_FOR_S = 5.0
_STEADY_WITHIN = GIB // 16


@dataclass(frozen=True, slots=True)
class Waited:
    """How a wait for memory ended; ``left`` in bytes."""

    left: int
    seconds: float
    enough: bool


def recovered(before: int, lowest: int, left: int) -> bool:
    """Whether ``left`` is as good as it was ``before``, having been at ``lowest``."""
    return left >= before - min(2 * GIB, max(0, before - lowest) // 8)


def wait_for_room(post: Post, at_most_s: float) -> bool:
    """Before the command begins: whether there is room for it, or comes to be."""
    limits, record = post.limits, post.record

    def enough(reading: Reading) -> bool:
        return limits.headroom(reading) >= limits.ask_below

    if enough(post.counters.read()):
        return True
    record.say(f"too little memory is left to start with; waiting for at most {at_most_s:g} s")
    waited = _wait(post, enough, at_most_s, give_up_after_s=at_most_s)
    record.change("room" if waited.enough else "refused", left=waited.left, waited=waited.seconds)
    if not waited.enough:
        record.say(f"only {gib(waited.left)} are left; the command was not started")
    return waited.enough


def wait_for_recovery(post: Post, before: int, lowest: int, at_most_s: float) -> None:
    """After the job is gone: until its memory is back."""

    def enough(reading: Reading) -> bool:
        return recovered(before, lowest, reading.left)

    try:
        waited = _wait(post, enough, at_most_s, give_up_after_s=_STEADY_FOR_S)
    except CounterError as error:
        post.record.say(f"whether memory came back is not known: {error}")
        return
    kind = "recovered" if waited.enough else "not_recovered"
    post.record.change(kind, left=waited.left, waited=waited.seconds)
    said = "memory is back" if waited.enough else f"memory is not back (it was {gib(before)})"
    post.record.say(f"{said}: {gib(waited.left)} left after {waited.seconds:.1f} s")


def _wait(
    post: Post, enough: Callable[[Reading], bool], at_most_s: float, *, give_up_after_s: float
) -> Waited:
    """Until there is enough, or nothing moved for so long, or a signal came."""
    began = steady_since = time.monotonic()
    steady_at = post.counters.read().left
    while True:
        reading, now = post.counters.read(), time.monotonic()
        if abs(reading.left - steady_at) > _STEADY_WITHIN:
            steady_at, steady_since = reading.left, now
        over = now - began >= at_most_s or now - steady_since >= give_up_after_s
        if enough(reading) or over or set(post.bell.wait(_LOOK_EVERY_S)) & set(PASSED_ON):
            return Waited(reading.left, round(now - began, 3), enough(reading))
