"""A run resumed is the run undisturbed, or it is refused."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fourge.checkpoint import store
from fourge.core.errors import ConfigError, FormatError, OutputError
from fourge.harness.saving import Saved
from fourge.harness.setup import checkpoint_folder
from fourge.harness.training import Finished, Started, Stop, train
from fourge.model import swap
from fourge.train.loop import StepResult
from tests.harness.samples import (
    final_tensors,
    held,
    losses,
    run_of,
    same_end,
    stopped_after,
)

Folder = Callable[..., Path]


@pytest.fixture
def model(tiny_folder: Folder) -> Path:
    return tiny_folder("qwen3", tied=True)


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"model": {"scheme": "none"}, "optim": {"master": "fp32", "moments": "fp32"}},
        {"model": {"scheme": "w4a4"}, "optim": {"clip_method": "two-pass"}},
        {"optim": {"master": "bf16+8", "moments": "nvfp4", "weight_decay": 0.1}},
        {"optim": {"master": "nvfp4"}, "train": {"last_layers": 1}},
        {"train": {"release": False, "accumulate": 2, "batch": 1, "recompute": "light"}},
    ],
)
def test_a_run_that_is_stopped_and_resumed_is_the_run_undisturbed(
    model: Path, tmp_path: Path, sections: dict[str, Any]
) -> None:
    whole, parts = (run_of(tmp_path / name, model, **sections) for name in ("whole", "parts"))
    expected = losses(list(train(whole)))
    seen = losses(stopped_after(parts, 2))
    seen += losses(stopped_after(parts, 3, resume=True))
    seen += losses(list(train(parts, resume=True)))
    assert seen == expected
    assert same_end(whole, parts)


def test_rows_held_to_the_base_are_resumed_from_the_cache(model: Path, tmp_path: Path) -> None:
    whole, parts = (
        run_of(tmp_path / name, model, data=held(tmp_path / name)["data"],
               train={**held(tmp_path / name)["train"], "kl_budget": 1e-3})
        for name in ("whole", "parts")
    )  # fmt: skip
    events = [event for event in train(whole) if isinstance(event, StepResult)]
    assert len({event.kl_weight for event in events}) > 4  # it follows the budget
    expected = losses(list(events))
    seen = losses(stopped_after(parts, 4))
    asked: list[str] = []
    rest = train(parts, resume=True, progress=lambda what, done, total: asked.append(what))
    assert losses(list(rest)) == expected[4:]
    assert seen == expected[:4]
    assert "asking the base model" not in asked
    assert same_end(whole, parts)


def test_a_stop_is_told_saved_and_not_exported(model: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path, model)
    events = stopped_after(run, 3)
    assert isinstance(events[-2], Saved)
    assert events[-1] == Finished(3, 15, None)
    assert not (run.out / "export").exists()
    started, *_ = train(run, resume=True)
    assert isinstance(started, Started)
    assert started.first == 4
    assert started.run == events[0].run  # type: ignore[union-attr]


def test_a_stop_before_the_first_step_leaves_nothing_to_save(model: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path, model)
    _, finished = train(run, stop=Stop(signal=2))
    assert finished == Finished(0, 2, None)
    assert store.latest(checkpoint_folder(run)) is None
    whole = run_of(tmp_path / "whole", model)
    assert losses(list(train(run, resume=True))) == losses(list(train(whole)))
    assert same_end(run, whole)


def test_a_run_that_is_complete_is_exported_again(model: Path, tmp_path: Path) -> None:
    import shutil

    run = run_of(tmp_path, model)
    list(train(run))
    before = final_tensors(run)
    shutil.rmtree(run.out / "export")
    started, finished = train(run, resume=True)
    assert isinstance(started, Started)
    assert started.first == 7
    assert finished == Finished(6, 0, run.out / "export")
    assert (run.out / "export" / "model.safetensors").exists()
    assert final_tensors(run).keys() == before.keys()


@pytest.mark.parametrize("began_with_bf16", [True, False])
def test_a_run_goes_on_in_what_it_was_begun_in_also_on_another_processor(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, began_with_bf16: bool
) -> None:
    monkeypatch.setattr(swap, "multiplies_bf16", lambda: began_with_bf16)
    run, whole = run_of(tmp_path / "run", model), run_of(tmp_path / "whole", model)
    list(train(whole))
    stopped_after(run, 3)
    monkeypatch.setattr(swap, "multiplies_bf16", lambda: not began_with_bf16)
    started, *_ = train(run, resume=True)
    assert isinstance(started, Started)
    assert started.compute_dtype == ("bfloat16" if began_with_bf16 else "float32")
    assert same_end(run, whole)


def test_what_a_kill_left_of_a_checkpoint_goes_also_if_no_step_is_left(
    model: Path, tmp_path: Path
) -> None:
    run = run_of(tmp_path, model)
    list(train(run))
    folder, dead = checkpoint_folder(run), subprocess.Popen(["true"])
    dead.wait()
    (folder / f".step-000003.{dead.pid}.partial").mkdir()
    list(train(run, resume=True))
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("what", ["whole", "stopped", "begun"])
def test_a_folder_that_holds_a_run_is_not_written_over(
    model: Path, tmp_path: Path, what: str
) -> None:
    run = run_of(tmp_path, model)
    if what == "whole":
        list(train(run))
    elif what == "stopped":
        stopped_after(run, 1)
    else:
        run.out.mkdir()
        (run.out / "events.jsonl").write_text("")
    with pytest.raises(OutputError, match="holds a run already") as caught:
        next(train(run))
    assert "--resume" in caught.value.fix


@pytest.mark.parametrize("name", ["run.yaml", "export"])
def test_what_stands_where_the_run_would_write_is_left_alone(
    model: Path, tmp_path: Path, name: str
) -> None:
    run = run_of(tmp_path, model)
    (run.out / name).mkdir(parents=True)
    with pytest.raises(OutputError, match=f"{name} exists"):
        next(train(run))


def test_two_cannot_train_into_one_folder_at_once(model: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path, model, train={"save_every_steps": 1})
    first = train(run)
    assert isinstance(next(first), Started)
    with pytest.raises(OutputError, match="Another process works"):
        next(train(run, resume=True))
    assert losses(list(first)) != []
    assert isinstance(next(train(run, resume=True)), Started)


def test_a_run_may_be_moved_with_its_data(model: Path, tmp_path: Path) -> None:
    stopped_after(run_of(tmp_path / "old", model), 2)
    (tmp_path / "old").rename(tmp_path / "new")
    moved, whole = (run_of(tmp_path / name, model) for name in ("new", "whole"))
    assert len(losses(list(train(moved, resume=True)))) == 4
    list(train(whole))
    assert same_end(moved, whole)


def test_there_must_be_a_run_to_resume(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no run to resume"):
        next(train(run_of(tmp_path, model), resume=True))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"optim": {"lr": 1e-3}}, "optim.lr: 0.003 -> 0.001"),
        ({"train": {"seed": 5}}, "train.seed: 0 -> 5"),
        ({"train": {"batch": 3}, "optim": {"beta1": 0.8}}, "train.batch: 2 -> 3; optim.beta1"),
        ({"optim": {"moments": "fp32"}}, 'optim.moments: "int8" -> "fp32"'),
    ],
)
def test_another_run_file_is_refused_by_what_differs(
    model: Path, tmp_path: Path, sections: dict[str, Any], said: str
) -> None:
    stopped_after(run_of(tmp_path, model), 2)
    with pytest.raises(ConfigError, match="not the one this run was begun with") as caught:
        next(train(run_of(tmp_path, model, **sections), resume=True))
    assert said in caught.value.why


def test_how_often_a_run_saves_may_change(model: Path, tmp_path: Path) -> None:
    stopped_after(run_of(tmp_path, model), 2)
    other = {"save_every_steps": 1, "save_every_minutes": 0.5, "keep_checkpoints": 1}
    run = run_of(tmp_path, model, train=other)
    assert len(losses(list(train(run, resume=True)))) == 4
    assert [path.name for path in store.checkpoints(checkpoint_folder(run))] == ["step-000006"]
    whole = run_of(tmp_path / "whole", model)
    list(train(whole))
    assert same_end(run, whole)


def test_other_data_is_refused(model: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path, model)
    stopped_after(run, 2)
    (tmp_path / "a.tsv").write_text("who?\tyou\nwhere?\tover there\nwhy?\tbecause\n")
    with pytest.raises(ConfigError, match="data is not what it was"):
        next(train(run, resume=True))


def test_another_model_is_refused(tiny_folder: Folder, tmp_path: Path) -> None:
    import shutil

    folder = tmp_path / "model"
    shutil.copytree(tiny_folder("qwen3", tied=True), folder)
    run = run_of(tmp_path, folder)
    stopped_after(run, 2)
    file = folder / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(ConfigError, match="not the model this run was begun with") as caught:
        next(train(run, resume=True))
    assert "digest" in caught.value.why


@pytest.mark.parametrize("file", ["tensors-00001.safetensors", "state.json"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_offered(
    model: Path, tmp_path: Path, file: str
) -> None:
    run = run_of(tmp_path, model, train={"save_every_steps": 1})
    stopped_after(run, 4)
    path = checkpoint_folder(run) / "step-000004" / file
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    with pytest.raises(FormatError, match=f"step-000004/{file} is damaged") as caught:
        next(train(run, resume=True))
    assert "step-000003" in caught.value.fix
    whole = run_of(tmp_path / "whole", model, train={"save_every_steps": 1})
    list(train(whole))
    import shutil

    shutil.rmtree(path.parent)
    assert len(losses(list(train(run, resume=True)))) == 3
    assert same_end(run, whole)
