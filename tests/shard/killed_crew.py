"""Kill ranks of a run, at random moments, and look at what it comes to.

Run as a program, so that the libraries are imported once: every rank is a fork of it.
"""

import os
import random
import sys
from pathlib import Path

import torch
import yaml  # type: ignore[import-untyped]

import fourge.cli.train
import fourge.shard.engine
import fourge.shard.saving  # noqa: F401 (before the forks)
from fourge.config.run import Run, load_run
from fourge.harness.setup import checkpoint_folder
from fourge.harness.training import train
from fourge.nvfp4 import compiled
from tests.harness.samples import final_tensors, names_under, tree_of
from tests.shard.forked import Death, Rank, command, crew

STEPS, END_S = 5, 60.0
LOST = "Another rank is gone"


def sample(folder: Path, model: Path) -> Run:
    train = {"steps": STEPS, "batch": 4, "save_every_steps": 1}
    tree = tree_of(folder, model, train=train, optim={"lr": 1e-4})
    (folder / "run.yaml").write_text(yaml.safe_dump(tree))
    return load_run(folder / "run.yaml")


def trained(run: Run, size: int, death: Death | None) -> list[Rank]:
    """Begin, or go on."""
    argv = ["train", str(run.out.parent / "run.yaml")]
    resume = ["--resume"] if (run.out / "events.jsonl").exists() else []
    return crew(size, lambda rank: command([*argv, *resume]), run.out, death)


def require_ended(ranks: list[Rank], death: Death) -> bool:
    """Whether the rank was killed; then all the others left in time, and one said why."""
    killed = ranks[death.rank].status < 0
    others = [rank for number, rank in enumerate(ranks) if number != death.rank]
    assert all(rank.seconds < END_S for rank in ranks), ranks
    if killed:
        assert all(rank.status in (0, 4) for rank in others), ranks
        voices = sum(rank.said.count(LOST) for rank in others)
        assert voices == (1 if any(rank.status == 4 for rank in others) else 0), ranks
        assert all("Traceback" not in rank.said for rank in others), ranks
    else:
        assert all(rank.status == 0 for rank in ranks), ranks
    return killed


def main(folder: Path, model: Path, size: int, kills: int) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # threads do not survive a fork
    torch.set_num_threads(1)
    compiled._can_compile = lambda device: False  # type: ignore[assignment]
    for _ in train(sample(folder / "alone", model)):  # what is imported late is imported here
        pass
    quiet, disturbed = sample(folder / "quiet", model), sample(folder / "disturbed", model)
    assert all(rank.status == 0 for rank in trained(quiet, size, None)), "undisturbed, it fails"
    chance, done = random.Random(), 0
    for number in range(kills):
        by_operation = number % 2 == 0
        death = Death(
            chance.randrange(size),
            operation=chance.randint(1, 40) if by_operation else None,
            after_s=None if by_operation else chance.uniform(0.0, 1.0),
        )
        done += require_ended(trained(disturbed, size, death), death)
    assert all(rank.status == 0 for rank in trained(disturbed, size, None)), "it does not go on"
    one, other = final_tensors(quiet), final_tensors(disturbed)
    assert one.keys() == other.keys(), "the end has other tensors"
    assert all(torch.equal(one[name], other[name]) for name in one), "the end is another"
    left = list(names_under(checkpoint_folder(disturbed)))
    assert left == list(names_under(checkpoint_folder(quiet))), left
    print(f"{done} kills")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
