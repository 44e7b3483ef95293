import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from fourge import api
from fourge.chat.load import load
from fourge.checkpoint.files import INDEX
from fourge.checkpoint.source import open_any
from fourge.core.errors import FormatError
from fourge.harness.setup import checkpoint_folder
from fourge.nvfp4 import compiled
from tests.harness.samples import run_of, stopped_after, trained_model

Folder = Callable[..., Path]
DTYPES = ("float32", "bfloat16")
IN_FLOAT32 = {"compute_dtype": "float32"}  # as a loaded model answers, on any processor


@pytest.fixture(autouse=True)
def _plain_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_can_compile", lambda device: False)


def logits(model: Any) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(torch.tensor([[1, 50, 99, 7, 200, 3]]), use_cache=False).logits
    return found


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"model": {"scheme": "none"}},
        {"optim": {"master": "nvfp4", "moments": "nvfp4"}},
        {"optim": {"master": "fp32"}},
        {"model": {"scheme": "w4a4"}},
        {"model": {"keep_bf16": ["embed_tokens", "norm"]}},  # the tied head is quantised
        {"train": {"last_layers": 1}},
    ],
    ids=["bf16", "dense", "packed", "fp32", "w4a4", "head", "last"],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_run_in_the_middle_is_the_model_that_it_trains(
    sections: dict[str, Any], dtype: str, tiny_folder: Folder, tmp_path: Path
) -> None:
    model = {"compute_dtype": dtype, **sections.get("model", {})}
    run = run_of(tmp_path, tiny_folder("qwen3", tied=True), **sections | {"model": model})
    stopped_after(run, 3)
    trained = logits(trained_model(run))
    opened = open_any(run.out)
    assert opened.checkpoint == checkpoint_folder(run) / "step-000003"
    paths = ["dense"] if run.model.scheme == "none" else ["train", "packed"]
    for path in paths:
        assert torch.equal(logits(load(opened, path=path, dtype=dtype).model), trained), path
    assert not torch.equal(trained, logits(load(open_any(run.model.path)).model))


@pytest.mark.parametrize("last_layers", [None, 1])
def test_a_run_that_began_with_an_export_keeps_the_codes_it_did_not_train(
    last_layers: int | None, tiny_folder: Folder, tmp_path: Path
) -> None:
    api.convert(tiny_folder("qwen3"), tmp_path / "base", "compressed-tensors")
    train = {} if last_layers is None else {"last_layers": last_layers}
    run = run_of(tmp_path / "run", tmp_path / "base", model=IN_FLOAT32, train=train)
    stopped_after(run, 2)
    trained = logits(trained_model(run))
    for path in ("train", "packed"):
        assert torch.equal(logits(load(open_any(run.out), path=path).model), trained), path


def test_a_tied_head_that_the_base_wrote_twice_follows_the_embedding(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    base = shutil.copytree(tiny_folder("qwen3", tied=True), tmp_path / "base")
    tensors = load_file(base / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, base / "model.safetensors", metadata={"format": "pt"})
    run = run_of(tmp_path / "run", base, model=IN_FLOAT32)
    stopped_after(run, 2)
    assert torch.equal(logits(load(open_any(run.out)).model), logits(trained_model(run)))


def test_a_single_checkpoint_can_be_named_and_brings_its_template_arguments(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    train = {"save_every_steps": 1, "keep_checkpoints": 5}
    data = {"template": {"enable_thinking": False}}
    run = run_of(tmp_path, tiny_folder("qwen3", tied=True), train=train, data=data)
    stopped_after(run, 3)
    first = open_any(checkpoint_folder(run) / "step-000001")
    assert first.template_arguments == {"enable_thinking": False}
    assert first.source.path.name == "step-000001"
    one, three = (load(each).model for each in (first, open_any(run.out)))
    assert not torch.equal(logits(one), logits(three))


def test_a_checkpoint_without_its_base_model_is_refused(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    api.convert(tiny_folder("qwen3"), tmp_path / "base", "safetensors")
    run = run_of(tmp_path / "run", tmp_path / "base")
    stopped_after(run, 1)
    (tmp_path / "base").rename(tmp_path / "moved")
    with pytest.raises(FormatError, match="began with") as caught:
        open_any(run.out)
    assert "does not exist" in caught.value.why


def test_a_damaged_checkpoint_is_refused(tiny_folder: Folder, tmp_path: Path) -> None:
    run = run_of(tmp_path, tiny_folder("qwen3", tied=True))
    stopped_after(run, 1)
    index = checkpoint_folder(run) / "step-000001" / INDEX
    index.write_bytes(index.read_bytes()[:-9])
    with pytest.raises(FormatError, match="damaged"):
        open_any(run.out)


def test_anything_else_is_a_model_or_nothing(tiny_folder: Folder, tmp_path: Path) -> None:
    opened = open_any(tiny_folder("qwen3"))
    assert (opened.checkpoint, opened.scheme) == (None, "none")
    with pytest.raises(FormatError, match="does not exist"):
        open_any(tmp_path / "nothing")
