"""``fourge bench guard``: how far past its line a job gets, against a plain poller.

Fast: processes that touch memory as fast as the machine clears it, in small and in large pieces,
one and eight at once, start 1.5 GiB before the line. Measured is how much less than the floor was
ever left, by a sampler in this process that looks every millisecond. The yardstick is what people
write: look every 0.5 s, ``kill -9`` when it is too late. Victims stop by themselves at 4 GiB. That
much is touched once just before: the first touch of a virtual machine's page waits for its host.

Calm and breathing: what the guard costs beside a job that does nothing, and whether it leaves a
job alone that takes and returns 3 GiB every second, 2 GiB short of the line.

``left`` is the machine's or the cgroup's. On a machine that others use at the same time, run it in
a cgroup with a limit: their memory then counts for nothing.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from fourge.bench.guard_victim import MIB, SLOT, warm
from fourge.core.units import size
from fourge.guard.counters import Counters
from fourge.guard.options import guard_argv

ROOT = Path("/")
GIB = 1 << 30
AWAY = 3 * GIB // 2
AT_MOST = 4 * GIB
BREATH_GIB, SPARE_GIB = 3, 2
VARIANTS = ((1, 1), (1, 1024), (8, 1), (8, 1024))  # processes, MiB in a piece
POLL_S = 0.5
RECOVER_S = 5

# (counters, command, floor) -> (the least that was ever left, status)
Stopper = Callable[[Counters, list[str], int], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Fast:
    """One job that ran into its line. Bytes, and bytes per second."""

    stopper: str
    processes: int
    piece_mib: int
    past: int
    speed: float
    status: int

    @property
    def name(self) -> str:
        return f"{self.processes} x {self.piece_mib} MiB pieces, {self.stopper}"


@dataclass(frozen=True, slots=True)
class Steady:
    """A job that stays away from its line, and what the guard did and cost."""

    name: str
    seconds: float
    cores: float  # of one, used by the guard
    steps: dict[str, int]  # warned, asked, killed: how often
    status: int

    def row(self) -> str:
        steps = ", ".join(f"{kind} {count}" for kind, count in self.steps.items())
        return f"{self.name:<22} {self.seconds:>5.0f} s {self.cores:>6.2%} of a core, {steps}"


def fast(runs: int) -> Iterator[Fast]:
    """Every variant in turn, so many times, under the guard and under the poller.

    They take turns in going first: the second finds huge pages that the first had to make.
    """
    _sample_on_time()
    pair: list[tuple[str, Stopper]] = [("guard", _guard), ("poller", _poller)]
    with Counters(ROOT) as counters:
        for _ in range(runs):
            for processes, piece_mib in VARIANTS:
                for name, stopper in pair:
                    yield _fast(counters, stopper, name, processes, piece_mib)
            pair.reverse()


def table(measured: list[Fast]) -> list[str]:
    names = dict.fromkeys(each.name for each in measured)
    lines = [f"{'past the line by':<33} {'runs':>4} {'filled at':>9} {'median':>9} {'worst':>9}"]
    for name in names:
        group = [each for each in measured if each.name == name]
        past = [each.past for each in group]
        speed = median(each.speed for each in group) / 1e9
        lines.append(
            f"  {name:<31} {len(group):>4} {speed:>4.1f} GB/s {size(int(median(past))):>9} "
            f"{size(max(past)):>9}"
        )
    return lines


def steady(minutes: float) -> Iterator[Steady]:
    """A job that does nothing, for at most a minute; one that breathes, for all of it."""
    seconds = minutes * 60
    yield _steady("does nothing", ["sleep", f"{min(60.0, seconds):g}"])
    command = _victim("breathe", BREATH_GIB, seconds)
    yield _steady(f"breathes by {BREATH_GIB} GiB", command)


def _sample_on_time() -> None:
    """Beside eight busy processes, where that is allowed; children do not inherit it."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))


def _fast(
    counters: Counters, stopper: Stopper, name: str, processes: int, piece_mib: int
) -> Fast:  # fmt: skip
    with tempfile.NamedTemporaryFile() as shared:
        shared.write(bytes(processes * SLOT.size))
        shared.flush()
        command = _victim("fill", shared.name, processes, piece_mib, AT_MOST // MIB)
        floor = counters.read().left - AWAY
        warm(AT_MOST)
        lowest, status = stopper(counters, command, floor)
        slots = list(SLOT.iter_unpack(Path(shared.name).read_bytes()))
    touched, seconds = sum(slot[0] for slot in slots), max(slot[1] for slot in slots)
    return Fast(name, processes, piece_mib, floor - lowest, touched / max(seconds, 1e-9), status)


def _guard(counters: Counters, command: list[str], floor: int) -> tuple[int, int]:
    process = _guarded(command, floor, recover_s=str(RECOVER_S))
    lowest = counters.read().left
    while process.poll() is None:
        lowest = min(lowest, counters.read().left)
        time.sleep(0.001)
    return lowest, process.returncode


def _guarded(command: list[str], floor: int, **options: str) -> "subprocess.Popen[bytes]":
    chosen = {"floor": f"{floor // MIB}MiB", "root": str(ROOT), **options}
    return subprocess.Popen(guard_argv(command, chosen), stderr=subprocess.DEVNULL)


def _poller(counters: Counters, command: list[str], floor: int) -> tuple[int, int]:
    """The plain way; the sampler looks between two polls."""
    process = subprocess.Popen(command, start_new_session=True)
    lowest = counters.read().left
    while True:
        next_poll = time.monotonic() + POLL_S
        while time.monotonic() < next_poll:
            lowest = min(lowest, counters.read().left)
            time.sleep(0.001)
        if counters.read().left < floor or process.poll() is not None:
            with contextlib.suppress(ProcessLookupError):  # all have left by themselves
                os.killpg(process.pid, signal.SIGKILL)
            status = process.wait()
            time.sleep(1.0)  # its memory comes back
            return lowest, status


def _steady(name: str, command: list[str]) -> Steady:
    with Counters(ROOT) as counters, tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        floor = counters.read().left - (BREATH_GIB + SPARE_GIB) * GIB
        began, used = time.monotonic(), 0.0
        process = _guarded(command, max(floor, GIB), log=str(log))
        while process.poll() is None:
            used = max(used, _cpu_s(process.pid))
            time.sleep(0.1)
        seconds = time.monotonic() - began
        kinds = [json.loads(line)["kind"] for line in log.read_text("utf-8").splitlines()]
    steps = {kind: kinds.count(kind) for kind in ("warned", "asked", "killed")}
    return Steady(name, seconds, used / seconds, steps, process.returncode)


def _cpu_s(pid: int) -> float:
    """Seconds that a process has run, start-up included; 0 if it has gone."""
    nanoseconds = 0
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            nanoseconds += int((task / "schedstat").read_text("ascii").split()[0])
    return nanoseconds / 1e9


def _victim(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "fourge.bench.guard_victim", *map(str, arguments)]
