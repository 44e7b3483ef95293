from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fourge.config.run import Run
from fourge.harness.planning import BYTES_PER_TOKEN, wanted_of_model, wanted_of_run
from fourge.model import swap

Folder = Callable[..., Path]


def run_of(folder: Path, file: Path, **sections: Any) -> Run:
    tree = {"model": {"path": str(folder)}, "data": {"mix": [{"path": str(file)}]},
            "train": {"steps": 1}, "out": str(file.parent / "out")}  # fmt: skip
    for name, more in sections.items():
        tree[name] = {**tree.get(name, {}), **more}  # type: ignore[dict-item]
    return Run.model_validate(tree)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "a.tsv"
    path.write_text("who?\tme\n" * 100)
    return path


def test_a_run_is_planned_at_its_largest(tiny_folder: Folder, data: Path) -> None:
    run = run_of(
        tiny_folder("llama"), data,
        data={"max_tokens": 96}, train={"batch": 3, "release": False, "accumulate": 2,
        "loss_chunk": 7, "last_layers": 1, "recompute": "light"},
        optim={"master": "fp32", "moments": "nvfp4", "chunk_rows": 5},
        model={"scheme": "none", "device": "cpu", "compute_dtype": "float32"},
    )  # fmt: skip
    found = wanted_of_run(run)
    assert (found.tokens, found.batch, found.padded, found.recompute) == (96, 3, True, "light")
    assert (found.release, found.accumulate, found.loss_chunk) == (False, 2, 7)
    assert (found.last_layers, found.chunk_rows, found.scheme) == (1, 5, "none")
    assert (found.master, found.moments, found.compute) == ("fp32", "nvfp4", torch.float32)
    assert found.taught_positions == 0
    assert found.loader == 2 * 300 * 64  # the widest tensor, bf16 in the file, float32 here


def test_rows_that_are_held_to_the_base_are_counted_by_their_file(
    tiny_folder: Folder, data: Path
) -> None:
    mix = {"mix": [{"path": str(data), "learn": "base"}, {"path": str(data)}]}
    run = run_of(tiny_folder("llama"), data, data=mix, train={"kl_to_base": 1.0, "kl_top_k": 4})
    found = wanted_of_run(run)
    assert found.taught_positions == data.stat().st_size // BYTES_PER_TOKEN
    assert found.top_k == 4
    assert wanted_of_run(run, taught_positions=11).taught_positions == 11


def test_two_passes_are_those_of_the_clipping(tiny_folder: Folder, data: Path) -> None:
    run = run_of(tiny_folder("llama"), data, optim={"clip_method": "two-pass"})
    assert wanted_of_run(run).two_pass
    assert not wanted_of_run(run_of(tiny_folder("llama"), data)).two_pass


@pytest.mark.parametrize("has_bf16", [True, False])
def test_a_shape_needs_no_file_and_computes_as_the_device_does(
    has_bf16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swap, "multiplies_bf16", lambda: has_bf16)
    on_cpu = wanted_of_model("qwen3-0.6b", device="cpu", tokens=8)
    assert (on_cpu.layers, on_cpu.loader) == (28, 0)
    assert on_cpu.compute == (torch.bfloat16 if has_bf16 else torch.float32)
    assert wanted_of_model("qwen3-0.6b", device="cuda", tokens=8).compute == torch.bfloat16
    chosen = wanted_of_model("qwen3-0.6b", device="cpu", compute="bfloat16", tokens=8)
    assert chosen.compute == torch.bfloat16
