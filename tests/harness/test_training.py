"""Whole runs: what they leave and how they learn."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fourge import __version__
from fourge.checkpoint import store
from fourge.config.run import Run
from fourge.core.errors import DivergedError, PlanError
from fourge.core.events import read_events
from fourge.harness import planning, training
from fourge.harness.saving import Saved
from fourge.harness.setup import checkpoint_folder
from fourge.harness.training import Finished, Started, train
from fourge.memory.limit import Limit
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
    kinds = ["planned", "started", "step", "step", "saved", "step", "step", "saved", "step", "step",
             "saved", "finished"]  # fmt: skip
    assert [event["kind"] for event in events] == kinds
    assert {event["run"] for event in events} == {started.run}
    planned, begun, *_ = events
    assert 0 < planned["peak"] == max(planned["phases"].values()) < planned["limit"]
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


def test_a_run_that_does_not_fit_is_refused_before_a_weight_is_loaded(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "machine_limit", lambda asked, floor: Limit(1 << 20, "x"))
    monkeypatch.setattr(training, "make_ready", lambda *args: pytest.fail("loaded"))
    with pytest.raises(PlanError, match=r"This run needs .* 1 MiB is allowed"):
        list(train(run_of(tmp_path, model)))
    assert not (tmp_path / "out").exists()


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
