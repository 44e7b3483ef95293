"""Kill a run fifty times, at random moments, and look at what it comes to.

Run as a program, so that the libraries are imported once: every victim is a fork of it. Half of
them are killed at a random time, half at a random file operation, which is mostly while saving.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from fourge.config.run import Run
from fourge.core.events import FILE
from fourge.harness.setup import checkpoint_folder
from fourge.harness.training import train
from fourge.nvfp4 import compiled
from tests.harness.dying import fork, status_of
from tests.harness.samples import held, names_under, run_of, same_end

KILLS, STEPS = 50, 40


def sample(folder: Path, model: Path) -> Run:
    sections = held(folder)
    sections["train"] |= {"steps": STEPS, "save_every_steps": 1}
    return run_of(folder, model, **sections)


def begun(run: Run, *, die_at: int | None) -> int:
    """Train in a child: from the start, or from where the last one was killed."""

    def go_on() -> None:
        for _ in train(run, resume=(run.out / FILE).exists()):
            pass

    return fork(go_on, run.out, die_at)


def killed(run: Run, chance: random.Random) -> bool:
    """Whether a victim was killed before it came to the end of the run."""
    by_operation = chance.random() < 0.5
    pid = begun(run, die_at=chance.randint(1, 60) if by_operation else None)
    if not by_operation:
        time.sleep(chance.uniform(0.0, 0.4))
        os.kill(pid, signal.SIGKILL)
    return os.WIFSIGNALED(status_of(pid))


def finished(run: Run) -> None:
    _, status = os.waitpid(begun(run, die_at=None), 0)
    assert os.WIFEXITED(status), "a run that nobody disturbs was ended"
    assert os.WEXITSTATUS(status) == 0, "a run that nobody disturbs failed"


def main(folder: Path, model: Path) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # threads do not survive a fork
    torch.set_num_threads(1)
    compiled._can_compile = lambda device: False  # type: ignore[assignment]
    quiet, disturbed = sample(folder / "quiet", model), sample(folder / "disturbed", model)
    for _ in train(quiet):  # here, so that what is imported late is imported before the forks
        pass
    chance, kills, ends = random.Random(), 0, 0
    while kills < KILLS:
        if killed(disturbed, chance):
            kills += 1
        else:
            ends += 1
    finished(disturbed)
    assert same_end(quiet, disturbed), "the end is another"
    left = list(names_under(checkpoint_folder(disturbed)))
    assert left == list(names_under(checkpoint_folder(quiet))), left
    print(f"{kills} kills, {ends} ends")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
