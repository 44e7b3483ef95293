"""What makes the guard the last process to be held up: locked memory, priority, no OOM kill.

Each of these needs a privilege that a user may not have. What is not granted is reported, never
assumed: without locked pages a guard still works, only later, on a machine that is already short.
Called after the command was forked, so that nothing of it is inherited.
"""

import ctypes
import gc
import os
from collections.abc import Callable
from pathlib import Path

_MCL_CURRENT, _MCL_FUTURE = 1, 2


def put_on() -> tuple[str, ...]:
    """Take every protection there is; what was refused, in words."""
    gc.collect()
    gc.freeze()
    gc.disable()  # the loop makes no cycles, and must not stop to look for them
    wanted: dict[str, Callable[[], None]] = {
        "memory locked": _lock_memory,
        "real-time priority": _real_time,
        "highest priority": lambda: os.setpriority(os.PRIO_PROCESS, 0, -20),
        "no OOM kill": _exempt,
    }
    return tuple(name for name, take in wanted.items() if not _granted(take))


def _granted(take: Callable[[], None]) -> bool:
    try:
        take()
    except OSError:
        return False
    return True


def _lock_memory() -> None:
    if ctypes.CDLL(None, use_errno=True).mlockall(_MCL_CURRENT | _MCL_FUTURE) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _real_time() -> None:
    # The lowest of the real-time levels is above every ordinary process; the loop sleeps at least
    # 1 ms between looks of some 50 us, so nobody waits for it.
    os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))


def _exempt() -> None:
    Path("/proc/self/oom_score_adj").write_text("-1000", encoding="ascii")
