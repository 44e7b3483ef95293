"""Load a checkpoint on one number of ranks after another, save it again, and compare all bits.

Run as a program, so that the libraries are imported once: every rank is a fork of it.
"""

import os
import sys
from pathlib import Path
from typing import Any

import torch

from fourge.checkpoint import store
from fourge.checkpoint.source import open_any
from fourge.checkpoint.state import TrainState
from fourge.config.run import Run
from fourge.core.crew import ALONE, Crew
from fourge.harness.saving import _written
from fourge.harness.setup import checkpoint_folder
from fourge.harness.training import prepared, train
from fourge.nvfp4 import compiled
from fourge.shard.launched import launched
from fourge.shard.ranks import joined
from tests.harness.samples import run_of
from tests.shard.forked import crew


def resaved(run: Run, meta: dict[str, Any], ranks: Crew) -> None:
    ready, _ = prepared(run, resume=True, crew=ranks)
    _written(ready, checkpoint_folder(run), {k: v for k, v in meta.items() if k != "optim"})


def rank_of(run: Run, meta: dict[str, Any]) -> int:
    place = launched()
    assert place is not None, "forked as torchrun would"
    with joined(place, "cpu") as ranks:
        resaved(run, meta, ranks)
    return 0


def require_same(one: TrainState, other: TrainState) -> None:
    assert one.tensors.keys() == other.tensors.keys(), "other tensors"
    for name, value in one.tensors.items():
        assert torch.equal(value, other.tensors[name]), name
    assert one.meta["optim"] == other.meta["optim"], "other numbers"


def main(folder: Path, model: Path, *formats: str) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # threads do not survive a fork
    torch.set_num_threads(1)
    compiled._can_compile = lambda device: False  # type: ignore[assignment]
    for number, form in enumerate(formats):
        master, moments = form.split(",")
        run = run_of(
            folder / str(number), model, train={"steps": 2, "batch": 4},
            optim={"lr": 1e-3, "master": master, "moments": moments},
        )  # fmt: skip
        for _ in train(run):
            pass
        path = checkpoint_folder(run) / store.name_of(2)
        first = store.load(path)
        for size in (2, 1, 2, 4, 3, 1):
            if size == 1:
                resaved(run, first.meta, ALONE)
            else:
                work = crew(size, lambda rank: rank_of(run, first.meta), folder / "said")  # noqa: B023
                assert all(rank.status == 0 for rank in work), work
                files = list(path.glob("shard-*.safetensors"))
                assert len(files) == size, "a rank wrote nothing"
            require_same(first, store.load(path))
            assert open_any(run.out).source.tensors, "it opens as a model"
    print("the same bits")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
