"""Kill a process that saves, at every file operation and then at random times, and look.

Run as a program, so that torch is imported once: the victims are forks of it. An audit hook
counts the file operations of a victim and kills it at a given one.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

from fourge.checkpoint import disk
from fourge.checkpoint.store import checkpoints, load, prune, save
from tests.checkpoint.samples import same, sample

WATCHED = {"open", "os.mkdir", "os.rename", "os.rmdir", "os.remove", "shutil.rmtree"}


def victim(folder: Path, *, die_at: int | None) -> None:
    """Save over a checkpoint, save a new one, prune: again and again if nothing else stops it."""
    count = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event in WATCHED:
            count += 1
            if count == die_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    while True:
        save(folder, sample(1, seed=2))
        save(folder, sample(2, seed=3))
        prune(folder, 2)
        prune(folder, 1)
        if die_at is not None:
            os._exit(0)
        save(folder, sample(1, seed=1))


def survived(folder: Path, *, die_at: int | None, delay_s: float = 0.0) -> bool:
    """Whether a victim came to its end."""
    pid = os.fork()
    if pid == 0:
        try:
            victim(folder, die_at=die_at)
        finally:
            os._exit(3)
    if die_at is None:
        time.sleep(delay_s)
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the victim failed"
    return os.WIFEXITED(status)


def look(folder: Path, *, exchanged: bool) -> None:
    """Everything under a final name is whole, and one is there; nothing hidden outlives a prune."""
    known = [sample(1, seed=1), sample(1, seed=2), sample(2, seed=3)]
    if exchanged:
        assert checkpoints(folder), "a moment without any checkpoint"
    for path in checkpoints(folder):
        assert any(same(load(path), state) for state in known), path
    prune(folder, 2)
    assert checkpoints(folder)
    for path in folder.iterdir():
        assert path in checkpoints(folder), path
        assert any(same(load(path), state) for state in known), path


def start(folder: Path) -> Path:
    save(folder, sample(1, seed=1))
    return folder


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    for exchanged in (True, False):
        if not exchanged:
            disk.exchange = lambda one, other: False
        for moment in range(1, 1000):
            place = start(folder / f"{exchanged}-{moment}")
            ended = survived(place, die_at=moment)
            look(place, exchanged=exchanged)
            if ended:
                assert moment > 20, "the hook saw too little"
                break
        else:
            raise AssertionError("the victim never came to its end")
        for number in range(10):
            place = start(folder / f"{exchanged}-random-{number}")
            survived(place, die_at=None, delay_s=random.uniform(0, 0.05))
            look(place, exchanged=exchanged)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
