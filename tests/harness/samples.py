"""Small whole runs: two files of data, a tiny model, and what such a run leaves."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fourge.checkpoint import store
from fourge.config.run import Run
from fourge.harness.setup import check, checkpoint_folder, make_ready
from fourge.harness.training import Happened, Started, Stop, train
from fourge.train.loop import StepResult
from fourge.train.state import restore_

TSV = "who?\tme\nwhere?\tover there\nwhy?\tbecause\n"
JSONL = (
    '{"prompt": "sky?", "response": "blue"}\n'
    '{"messages": [{"role": "user", "content": "sea?"}, '
    '{"role": "assistant", "content": "deep"}]}\n'
)


def tree_of(folder: Path, base: Path, /, **sections: Any) -> dict[str, Any]:
    """A run file's content; the data is written beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.tsv").write_text(TSV)
    (folder / "b.jsonl").write_text(JSONL)
    mix = [{"path": str(folder / "a.tsv")}, {"path": str(folder / "b.jsonl")}]
    return {
        "model": {"path": str(base), **sections.get("model", {})},
        "data": {"mix": mix, "max_tokens": 64, **sections.get("data", {})},
        "train": {"steps": 6, "batch": 2, **sections.get("train", {})},
        "optim": {"lr": 3e-3, **sections.get("optim", {})},
        "guard": {"enabled": False, **sections.get("guard", {})},
        "out": str(folder / "out"),
    }


def held(folder: Path) -> dict[str, Any]:
    """Sections of a run whose second file is held to the base model."""
    mix = [{"path": str(folder / "a.tsv")}, {"path": str(folder / "b.jsonl"), "learn": "base"}]
    return {"data": {"mix": mix}, "train": {"kl_to_base": 0.5, "kl_top_k": 16}}


def run_of(folder: Path, base: Path, /, **sections: Any) -> Run:
    return Run.model_validate(tree_of(folder, base, **sections))


def losses(events: list[Happened]) -> list[float]:
    return [event.loss for event in events if isinstance(event, StepResult)]


def stopped_after(run: Run, step: int, *, resume: bool = False) -> list[Happened]:
    """Train, and ask to stop when this step is done."""
    stop, seen = Stop(), []
    for event in train(run, resume=resume, stop=stop):
        seen.append(event)
        first = isinstance(event, Started) and event.first > step
        if first or (isinstance(event, StepResult) and event.step == step):
            stop.signal = 15
    return seen


def final_tensors(run: Run) -> dict[str, Tensor]:
    """Weights and moments of the last checkpoint."""
    path = store.latest(checkpoint_folder(run))
    assert path, "the run has no checkpoint"
    state = store.load(path)
    numbers = {
        f"{name}/{key}": torch.tensor(value, dtype=torch.float64)
        for name, values in state.meta["optim"].items()
        for key, value in values.items()
    }
    return {**state.tensors, **numbers}


def exported(run: Run) -> dict[str, bytes]:
    """Every file of the export."""
    return {path.name: path.read_bytes() for path in sorted((run.out / "export").iterdir())}


def same_end(one: Run, other: Run) -> bool:
    """Whether two runs ended in the same weights, moments and files, bit for bit."""
    mine, theirs = final_tensors(one), final_tensors(other)
    return (
        mine.keys() == theirs.keys()
        and all(torch.equal(bytes_of(mine[n]), bytes_of(theirs[n])) for n in mine)
        and exported(one) == exported(other)
    )


def bytes_of(tensor: Tensor) -> Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def trained_model(run: Run) -> Any:
    """The model as the last checkpoint has it, ready to run."""
    ready = make_ready(check(run, quiet), quiet)
    path = store.latest(checkpoint_folder(run))
    assert path, "the run has no checkpoint"
    restore_(store.load(path), ready.model, ready.optimizer)
    return ready.model.eval()


def quiet(what: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


def names_under(folder: Path) -> Iterator[str]:
    return (str(path.relative_to(folder)) for path in sorted(folder.rglob("*")))
