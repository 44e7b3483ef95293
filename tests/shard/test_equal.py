"""With equal gradients an update does not depend on how many processes make it: to the bit."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from fourge.train.state import capture
from tests.shard.equal_worker import FORMATS, STEPS, gradient, optimizer_of
from tests.shard.launch import torchrun
from tests.train.samples import prepared


def of_one(master: str) -> dict[str, Tensor]:
    model, named = prepared("qwen3", master=master)
    optimizer = optimizer_of(master, named)
    for step in range(STEPS):
        for name, param, _ in optimizer.named():
            param.grad = gradient(name, step, param.shape, param.dtype)
        optimizer.step()
        optimizer.zero_grad()
    return capture(model, optimizer, {"step": STEPS}).tensors


@pytest.mark.slow
@pytest.mark.parametrize("size", [3])  # its cuts are uneven
def test_weights_residuals_and_moments_are_bit_equal(size: int, tmp_path: Path) -> None:
    done = torchrun(size, "-m", "tests.shard.equal_worker", str(tmp_path / "found.pt"))
    assert done.returncode == 0, done.stderr[-3000:]
    found = torch.load(tmp_path / "found.pt")
    for master, _ in FORMATS:
        expected = of_one(master)
        assert found[master].keys() == expected.keys()
        for name, value in expected.items():
            assert torch.equal(found[master][name], value), (master, name)
