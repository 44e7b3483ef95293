"""The loop: look, decide, act, write it down, sleep.

The guard leaves with 124 if it stopped the command, and only after memory came back. If the
command ends by itself, the guard leaves at once with its status, and processes that the command
left in the background live on, unwatched: as with ``timeout`` or a shell. If the guard had to stop
the job, nothing of it lives on; but what is left of it when the command itself has gone is asked
too, and has the rest of the grace. A trainer inside a shell script is saved by that.
"""

import math
import os
import platform
import signal
import time
from dataclasses import asdict

from fourge.guard import armour
from fourge.guard.bell import PASSED_ON, Bell
from fourge.guard.counters import CounterError, Counters
from fourge.guard.job import Job, descendants, signal_one, start
from fourge.guard.options import Settings
from fourge.guard.policy import Limits, Look, State, Step, decide, pause_s
from fourge.guard.post import Post
from fourge.guard.record import Record
from fourge.guard.recovery import wait_for_recovery, wait_for_room
from fourge.guard.sizes import gib

STOPPED = 124
_HELD_UP_S = 2.0

_WHAT_HAPPENS = {
    Step.WARNED: "a trainer that listens is told to drop caches and to save",
    Step.ASKED: "the command is asked to save and leave (SIGTERM)",
    Step.KILLED: "the job is killed",
}


def watch(settings: Settings, counters: Counters, limits: Limits, record: Record) -> int:
    """Run the command under guard; the status to leave with."""
    left = counters.read().left
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    job = start(settings.command, mask)
    post = Post(counters, limits, record, Bell())
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    record.open()
    try:
        record.change(
            "start", command=settings.command, pid=job.pid, left=left, limits=asdict(limits),
            sources=counters.sources(), not_granted=armour.put_on(),
            python=platform.python_version(), kernel=os.uname().release,
        )  # fmt: skip
        if not wait_for_room(post, settings.recover_s):
            job.kill()
            return STOPPED
        return _guarded(post, job, settings.recover_s)
    finally:
        record.close()


def _guarded(post: Post, job: Job, recover_s: float) -> int:
    """From the gate to the end."""
    limits, record, before = post.limits, post.record, post.counters.read().left
    line = f" and at {gib(limits.limit)} in use" if limits.limit else ""
    record.say(f"{gib(before)} left; the line is at {gib(limits.floor)} left{line}")
    job.release()
    loop = _Loop(post, job, before)
    loop.run()
    stopped = loop.state.step >= Step.ASKED
    if loop.stubborn:
        record.say(f"{loop.stubborn} processes of the job do not die")
    record.change("end", status=job.status, stopped=stopped, lowest=loop.lowest)
    if not stopped:
        return job.status or 0
    wait_for_recovery(post, before, loop.lowest, recover_s)
    return STOPPED


class _Loop:
    """What is remembered between two looks."""

    def __init__(self, post: Post, job: Job, before: int) -> None:
        self.post, self.job = post, job
        self.state, self.lowest = State(), before
        self.trouble = ""  # what could not be read, last time
        self.last_look = self.last_beat = -math.inf
        self.told_to_leave = self.rest_told = False
        self.stubborn = 0  # processes that not even SIGKILL ended

    def run(self) -> None:
        """Until the command has left or everybody was killed."""
        while self.state.step < Step.KILLED and not self._over():
            look = self._look()
            before, self.state = self.state.step, decide(self.state, look, self.post.limits)
            if self.state.step != before:
                self._act(look)
            self._pass_on(self.post.bell.wait(pause_s(self.state, look)))
            self.job.reap()

    def _over(self) -> bool:
        if self.job.status is None:
            return False
        if self.state.step < Step.ASKED:
            return True
        rest = descendants(os.getpid())
        for pid, parent in rest.items() if not self.rest_told else ():
            signal_one(pid, parent, signal.SIGTERM)
        self.rest_told = True
        return not rest

    def _look(self) -> Look:
        now = time.monotonic()
        # A guard that was held up itself, by Ctrl-Z say, cannot tell who was silent meanwhile.
        held_up = now - self.last_look > _HELD_UP_S and self.last_beat > -math.inf
        if self.job.heard() or held_up:
            self.last_beat = now
        self.last_look = now
        silent = now - self.last_beat if self.last_beat > -math.inf else 0.0
        try:
            reading = self.post.counters.read()
        except CounterError as error:
            self.trouble = f": {error}"
            return Look(now, None, silent)
        self.lowest = min(self.lowest, reading.left)
        headroom = self.post.limits.headroom(reading)
        self.post.record.sample(now, reading.left, headroom)
        return Look(now, headroom, silent)

    def _act(self, look: Look) -> None:
        step = self.state.step
        if step == Step.KILLED:
            self.stubborn = self.job.kill()
        elif step == Step.ASKED and not self.told_to_leave:  # a second SIGTERM may mean "at once"
            self.job.signal(signal.SIGTERM)
        elif step == Step.WARNED:
            self.job.warn()
        reason = self.state.reason + (self.trouble if look.headroom is None else "")
        rate = self.state.trend.rate if self.state.trend else 0.0
        self.post.record.change(
            step.name.lower(), reason=reason, headroom=look.headroom, rate=int(rate)
        )
        if step in _WHAT_HAPPENS:
            self.post.record.say(f"{reason}; {_WHAT_HAPPENS[step]}")

    def _pass_on(self, signals: bytes) -> None:
        for number in signals:
            if number in PASSED_ON:
                self.told_to_leave |= number == signal.SIGTERM
                self.job.signal(number)
                self.post.record.change("passed_on", signal=number)
