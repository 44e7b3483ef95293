"""The same run on several processes: losses, gradients, rounding, against one."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fourge.train.loop import StepResult
from tests.shard.launch import torchrun
from tests.shard.steps_worker import trained

Found = dict[str, tuple[list[StepResult], dict[str, Tensor]]]
EXACT = {"lr": 1e-4, "clip": 1.0, "master": "fp32", "moments": "fp32"}
SETTINGS: dict[str, dict[str, Any]] = {
    "exact": {"model": {"tied": True, "master": "fp32"}, "optim": EXACT, "steps": 50},
    "packed": {"model": {"tied": False}, "optim": {"lr": 1e-5, "clip": 1.0}, "steps": 50},
    "kept": {
        "model": {"tied": True, "master": "fp32", "recompute": "none"}, "accumulate": 2,
        "optim": EXACT, "release": False, "steps": 4,
    },
    "two passes": {
        "model": {"tied": True, "master": "fp32", "recompute": "light"},
        "optim": {**EXACT, "clip_method": "two-pass"}, "steps": 4,
    },
    "dense": {
        "model": {"tied": True, "master": "fp32", "scheme": "none", "last_layers": 1},
        "optim": EXACT, "steps": 4,
    },
}  # fmt: skip


def of_ranks(size: int, settings: dict[str, Any], folder: Path) -> Found:
    (folder / "settings.json").write_text(json.dumps(settings))
    arguments = [str(folder / "settings.json"), str(folder / "found.pt")]
    done = torchrun(size, "-m", "tests.shard.steps_worker", *arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    found: Found = torch.load(folder / "found.pt", weights_only=False)
    return found


@pytest.fixture(scope="module")
def of_two(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return of_ranks(2, SETTINGS, tmp_path_factory.mktemp("two"))


def require_same(one: list[StepResult], other: list[StepResult], close: float = 1e-5) -> None:
    for mine, theirs in zip(one, other, strict=True):
        assert theirs.loss == pytest.approx(mine.loss, abs=close)
        assert theirs.grad_norm == pytest.approx(mine.grad_norm, rel=1e-3)
        assert (theirs.tokens, theirs.targets) == (mine.tokens, mine.targets)
        assert theirs.target_loss == pytest.approx(mine.target_loss, abs=close)


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_the_losses_of_two_processes_are_those_of_one(of_two: Found, name: str) -> None:
    results, weights = trained(SETTINGS[name])
    theirs, their_weights = of_two[name]
    # A sum that differs in its last bit may round a bf16 weight, or a code, to the other side.
    require_same(results, theirs, 1e-4 if name == "packed" else 1e-5)
    assert weights.keys() == their_weights.keys()
    assert theirs[-1].moved == pytest.approx(results[-1].moved, abs=0.1)


@pytest.mark.slow
def test_stochastic_rounding_decides_the_same_on_two_processes(of_two: Found) -> None:
    """After 50 steps of bf16 with noise, nearly all weights are the same to the bit."""
    _, weights = trained(SETTINGS["packed"])
    _, theirs = of_two["packed"]
    differ = sum(int((weights[name] != theirs[name]).sum()) for name in weights)
    assert differ < 0.002 * sum(each.numel() for each in weights.values())
