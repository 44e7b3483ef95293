"""A piece of work in a forked child that is killed at one of its file operations."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

WATCHED = {"open", "os.mkdir", "os.rename", "os.rmdir", "os.remove", "shutil.rmtree"}


def fork(work: Callable[[], None], folder: Path, die_at: int | None) -> int:
    """Do it in a child, killed at its ``die_at``-th operation below the folder; its id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        count = 0

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal count
            if event in WATCHED and arguments and str(folder) in str(arguments[0]):
                count += 1
                if count == die_at:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        work()
        os._exit(0)
    finally:
        os._exit(3)


def status_of(pid: int) -> int:
    """How it ended: killed, or well."""
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "a victim failed"
    return status
