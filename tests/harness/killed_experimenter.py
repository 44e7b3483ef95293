"""Kill an experiment at file operations all along its way, and look at what it comes to.

Run as a program, so that the libraries are imported once: every victim is a fork of it, killed at
its n-th operation under the experiment's folder. One that is not disturbed shows what must come.
"""

import os
import sys
from pathlib import Path

import pytest
import torch

from fourge.config.experiment import Experiment
from fourge.core.events import FILE, read_events
from fourge.harness.experiment import experiment
from fourge.nvfp4 import compiled
from tests.harness.dying import fork, status_of
from tests.harness.experiment_samples import few_questions, plan_of, scripted

EVERY = (3, 20, 45, 60, 28, 70, 47, 80)  # operations that a victim lives


def plan(folder: Path, base: Path) -> Experiment:
    train = {"steps": 2, "save_every_steps": 1}
    return plan_of(folder, base, train=train, gates={"early_stop": False})


def victim(plan: Experiment, die_at: int | None) -> int:
    """Go on with the experiment in a child; how that ended."""

    def go_on() -> None:
        for _ in experiment(plan):
            pass

    return status_of(fork(go_on, plan.out, die_at))


def exported(plan: Experiment) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((plan.out / "export").iterdir())}


def main(folder: Path, base: Path, patch: pytest.MonkeyPatch) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # threads do not survive a fork
    torch.set_num_threads(1)
    patch.setattr(compiled, "_can_compile", lambda device: False)
    few_questions(patch, folder / "cache")
    scripted(patch, ["untaught"], {"02-share-1": "good"})
    quiet, disturbed = plan(folder / "quiet", base), plan(folder / "disturbed", base)
    for _ in experiment(quiet):
        pass
    kills = sum(os.WIFSIGNALED(victim(disturbed, die_at)) for die_at in EVERY)
    assert victim(disturbed, None) == 0
    assert exported(quiet) == exported(disturbed), "the end is another"
    trash = [sorted(p.name for p in (each.out / "trash").iterdir()) for each in (quiet, disturbed)]
    assert trash[0] == trash[1], trash
    moved = [e["name"] for e in read_events(disturbed.out / FILE) if e["kind"] == "moved"]
    assert len(moved) == len(set(moved)), moved
    print(f"{kills} kills")  # noqa: T201


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        main(Path(sys.argv[1]), Path(sys.argv[2]), patch)
