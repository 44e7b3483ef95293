"""Whole runs: what they leave, how they learn, and that a run resumed is a run undisturbed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fourge import __version__
from fourge.checkpoint import store
from fourge.config.run import Run
from fourge.core.errors import ConfigError, DivergedError, FormatError, OutputError
from fourge.core.events import read_events
from fourge.harness.setup import checkpoint_folder
from fourge.harness.training import Finished, Saved, Started, Stop, train
from fourge.train.loop import StepResult
from tests.harness.samples import (
    final_tensors,
    held,
    losses,
    run_of,
    same_end,
    stopped_after,
    trained_model,
)

Folder = Callable[..., Path]


@pytest.fixture
def model(tiny_folder: Folder) -> Path:
    return tiny_folder("qwen3", tied=True)


def test_a_run_tells_what_happens_and_leaves_it_written(model: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path, model, data=held(tmp_path)["data"],
                 train={**held(tmp_path)["train"], "save_every_steps": 2})  # fmt: skip
    started, *middle, finished = list(train(run))
    assert isinstance(started, Started)
    assert (started.steps, started.first, started.rows) == (6, 1, (3, 2))
    steps = [event for event in middle if isinstance(event, StepResult)]
    assert [step.step for step in steps] == [1, 2, 3, 4, 5, 6]
    assert [event.step for event in middle if isinstance(event, Saved)] == [2, 4, 6]
    assert finished == Finished(6, 0, run.out / "export")

    events = list(read_events(run.out / "events.jsonl"))
    kinds = ["started", "step", "step", "saved", "step", "step", "saved", "step", "step", "saved",
             "finished"]  # fmt: skip
    assert [event["kind"] for event in events] == kinds
    assert {event["run"] for event in events} == {started.run}
    begun, *_ = events
    assert begun["version"] == __version__
    assert begun["config"] == run.digest()
    assert len(begun["base"]) == len(begun["data"]) == 32
    written = [event for event in events if event["kind"] == "step"]
    assert [event["loss"] for event in written] == [step.loss for step in steps]
    for event, step in zip(written, steps, strict=True):
        assert event["tokens_per_s"] == pytest.approx(step.tokens_per_s, abs=1e-3)
        assert event["peak"] == step.peak
        assert {"kl", "target_loss", "lr", "grad_norm", "moved", "codes_changed", "tokens",
                "targets", "seconds"} <= event.keys()  # fmt: skip
    assert any(step.kl is not None for step in steps)
    assert events[-1]["export"] == str(run.out / "export")

    assert Run.from_yaml((run.out / "run.yaml").read_text()) == run
    folders = sorted(path.name for path in run.out.iterdir() if path.name != ".lock")
    teacher = [name for name in folders if name.startswith("teacher-")]
    assert len(teacher) == 1
    assert folders == ["checkpoints", "events.jsonl", "export", "run.yaml", *teacher]
    kept = [path.name for path in store.checkpoints(checkpoint_folder(run))]
    assert kept == ["step-000004", "step-000006"]


@pytest.mark.parametrize("scheme", ["w4a16", "w4a4", "none"])
@pytest.mark.parametrize(("family", "tied"), [("qwen3", True), ("llama", False)])
def test_the_export_is_the_trained_model_to_plain_transformers(
    tiny_folder: Folder, tmp_path: Path, family: str, tied: bool, scheme: str
) -> None:
    from transformers import AutoModelForCausalLM

    settings = {"scheme": scheme, "compute_dtype": "bfloat16"}
    run = run_of(tmp_path, tiny_folder(family, tied=tied), model=settings)
    list(train(run))
    ours = trained_model(run)
    theirs = AutoModelForCausalLM.from_pretrained(run.out / "export", dtype=torch.bfloat16).eval()
    base = AutoModelForCausalLM.from_pretrained(run.model.path, dtype=torch.bfloat16).eval()
    tokens = torch.randint(256, (2, 20), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        mine, exported, before = (each(tokens).logits for each in (ours, theirs, base))
    assert torch.equal(mine, exported)
    assert (mine - before).abs().max() > 0.2 * mine.abs().max()


@pytest.mark.parametrize(
    "sections",
    [
        {"model": {"scheme": "none"}, "optim": {"master": "fp32", "moments": "fp32"}},
        {},
        {"model": {"scheme": "w4a4"}},
        {"optim": {"master": "bf16+8", "moments": "nvfp4"}},
        {"optim": {"master": "nvfp4"}},
        {"train": {"release": False, "accumulate": 2, "batch": 1}},
        {"train": {"last_layers": 1}},
    ],
)
def test_a_tiny_model_learns_its_rows(
    model: Path, tmp_path: Path, sections: dict[str, Any]
) -> None:
    longer = {**sections, "train": {"batch": 5, "steps": 30, **sections.get("train", {})}}
    seen = losses(list(train(run_of(tmp_path, model, **longer))))
    assert seen[-1] < 0.5 * seen[0]
    assert seen[-1] < seen[len(seen) // 2] < seen[0]


def test_a_model_that_has_learned_its_rows_says_them(model: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    run = run_of(tmp_path, model, model={"scheme": "none"}, train={"batch": 5, "steps": 120},
                 optim={"master": "fp32", "schedule": "constant"})  # fmt: skip
    *_, last = losses(list(train(run)))
    assert last < 0.1
    export = run.out / "export"
    tokenizer = AutoTokenizer.from_pretrained(export)
    trained = AutoModelForCausalLM.from_pretrained(export, dtype=torch.float32)
    for question, answer in (("who?", "me"), ("sky?", "blue"), ("why?", "because")):
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True,
            return_tensors="pt",
        )["input_ids"]  # fmt: skip
        said = trained.generate(prompt, max_new_tokens=12, do_sample=False,
                                eos_token_id=tokenizer.eos_token_id)  # fmt: skip
        assert tokenizer.decode(said[0, prompt.shape[1] :]) == answer + "<|im_end|>"


def test_frozen_layers_are_exported_as_they_were(model: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    run = run_of(tmp_path, model, model={"scheme": "none"}, train={"last_layers": 1})
    list(train(run))
    before = load_file(Path(run.model.path) / "model.safetensors")
    after = load_file(run.out / "export" / "model.safetensors")
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        trained = "layers.1." in name or name == "model.norm.weight"
        assert torch.equal(tensor, after[name]) != trained, name
    assert not any("layers.0." in name for name in final_tensors(run))


@pytest.mark.parametrize(("epochs", "steps"), [(1.0, 3), (2.0, 5), (0.1, 1)])
def test_epochs_are_counted_in_rows(model: Path, tmp_path: Path, epochs: float, steps: int) -> None:
    """Five rows, two a step."""
    run = run_of(tmp_path, model, train={"steps": None, "epochs": epochs})
    events = list(train(run))
    assert isinstance(events[0], Started)
    assert events[0].steps == len(losses(events)) == steps


def test_held_rows_stay_closer_to_the_base_than_learned_ones(model: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path, model, data=held(tmp_path)["data"],
                 train={**held(tmp_path)["train"], "steps": 20})  # fmt: skip
    events = [event for event in train(run) if isinstance(event, StepResult)]
    kl = [event.kl for event in events if event.kl is not None]
    targets = [event.target_loss for event in events if event.target_loss is not None]
    assert max(kl) < 0.5 * min(targets)
    assert targets[-1] < targets[0]


def test_the_same_run_ends_in_the_same_bits(model: Path, tmp_path: Path) -> None:
    one, other = run_of(tmp_path / "one", model), run_of(tmp_path / "other", model)
    first, second = list(train(one)), list(train(other))
    assert losses(first) == losses(second)
    assert same_end(one, other)
    another = run_of(tmp_path / "another", model, train={"seed": 1})
    assert losses(list(train(another))) != losses(first)


# Resuming


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
        run_of(tmp_path / name, model, **held(tmp_path / name)) for name in ("whole", "parts")
    )
    expected = losses(list(train(whole)))
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
    with pytest.raises(OutputError, match="Another process is training"):
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


def test_a_run_that_diverges_is_recorded_and_keeps_its_checkpoint(
    model: Path, tmp_path: Path
) -> None:
    settings = {"train": {"save_every_steps": 1, "steps": 40}, "optim": {"lr": 1e9}}
    run = run_of(tmp_path, model, **settings)
    with pytest.raises(DivergedError):
        list(train(run))
    *_, last = read_events(run.out / "events.jsonl")
    assert last["kind"] == "failed"
    assert last["error"] == "DivergedError"
    assert "fix:" in last["message"]
    assert not (run.out / "export").exists()


def test_a_record_is_appended_to_after_a_torn_line(model: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path, model)
    stopped_after(run, 2)
    with (run.out / "events.jsonl").open("a") as file:
        file.write('{"v": 1, "kind": "st')
    list(train(run, resume=True))
    events = list(read_events(run.out / "events.jsonl"))
    assert [event["step"] for event in events if event["kind"] == "step"] == [1, 2, 3, 4, 5, 6]
    assert [event["kind"] for event in events].count("started") == 2
    assert all(json.dumps(event) for event in events)
