"""Ranks as forks of one program, in the environment that torchrun gives: libraries load once.

``torchrun`` is used where torchrun is what is tested. Here the store that it keeps is kept by the
parent, and what each rank says is in a file of its own.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from tests.harness.dying import WATCHED


@dataclass(frozen=True, slots=True)
class Rank:
    """How a rank ended: its exit status, or minus the signal; and what it said."""

    status: int
    said: str
    seconds: float  # after the first one that ended


@dataclass(frozen=True, slots=True)
class Death:
    """Which rank dies: at one of its file operations, or so long after training has begun."""

    rank: int
    operation: int | None = None
    after_s: float | None = None


def crew(
    size: int, work: Callable[[int], int], out: Path, death: Death | None = None,
    timeout_s: float = 400.0,
) -> list[Rank]:  # fmt: skip
    """Have every rank do something, until all have ended; ``work`` gives a status for a rank."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    out.mkdir(parents=True, exist_ok=True)
    pids = [_fork(rank, size, store.port, work, out, death) for rank in range(size)]
    if death is not None and death.after_s is not None:
        _wait_until_begun(out / "said-0.txt", timeout_s)
        time.sleep(death.after_s)
        os.kill(pids[death.rank], signal.SIGKILL)  # nobody has waited for it yet
    ended = _wait(pids, time.monotonic() + timeout_s)
    first = min(at for _, at in ended)
    said = [(out / f"said-{rank}.txt").read_text() for rank in range(size)]
    return [Rank(status, text, at - first) for (status, at), text in zip(ended, said, strict=True)]


def _wait_until_begun(said: Path, timeout_s: float) -> None:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end and not (said.exists() and "computing in" in said.read_text()):
        time.sleep(0.01)


def _wait(pids: list[int], deadline: float) -> list[tuple[int, float]]:
    ended: dict[int, tuple[int, float]] = {}
    while len(ended) < len(pids):
        for pid in pids:
            if pid not in ended and (found := os.waitpid(pid, os.WNOHANG))[0]:
                ended[pid] = os.waitstatus_to_exitcode(found[1]), time.monotonic()
        if time.monotonic() > deadline:
            for pid in (pid for pid in pids if pid not in ended):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            raise AssertionError(f"{len(pids) - len(ended)} ranks did not end")
        time.sleep(0.01)
    return [ended[pid] for pid in pids]


def _fork(
    rank: int, size: int, port: int, work: Callable[[int], int], out: Path, death: Death | None
) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 70
    try:
        descriptor = os.open(out / f"said-{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.environ |= {
            "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }  # fmt: skip
        if death is not None and death.rank == rank and death.operation is not None:
            _die_at(death.operation, out)
        status = work(rank)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def command(argv: Sequence[str]) -> int:
    """The command line, as a user would call it; its exit status."""
    from fourge.cli.main import main

    sys.argv = ["fourge", *argv]
    try:
        main()
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0
    return 0


def _die_at(operation: int, folder: Path) -> None:
    count = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event in WATCHED and arguments and str(folder) in str(arguments[0]):
            count += 1
            if count == operation:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
