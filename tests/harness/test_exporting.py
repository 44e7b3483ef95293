from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from fourge.harness.exporting import _from_checkpoint
from fourge.harness.training import prepared, train
from fourge.model.export import export
from tests.harness.samples import run_of


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["w4a16", "w4a4", "none"])
def test_an_export_from_the_checkpoint_is_that_from_memory(
    scheme: str, tiny_folder: Callable[..., Path], tmp_path: Path
) -> None:
    sections = {"train": {"steps": 1, "batch": 2}, "model": {"scheme": scheme}}
    run = run_of(tmp_path, tiny_folder("qwen3", tied=True), **sections)
    for _ in train(run):
        pass
    ready, _ = prepared(run, resume=True)
    target = "safetensors" if scheme == "none" else "compressed-tensors"
    export(_from_checkpoint(ready, target), tmp_path / "again", target)
    names = {path.name for path in (run.out / "export").iterdir()}
    assert names == {path.name for path in (tmp_path / "again").iterdir()}
    for name in names:
        one, other = (run.out / "export" / name), (tmp_path / "again" / name)
        if name == "model.safetensors":  # the order of the tensors is each one's own
            assert tensors_of(one) == tensors_of(other)
        else:
            assert one.read_bytes() == other.read_bytes(), name


def tensors_of(path: Path) -> dict[str, tuple[str, bytes]]:
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return {
        name: (str(tensor.dtype), bytes(tensor.reshape(-1).view(torch.uint8).tolist()))
        for name, tensor in tensors.items()
    }
