from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fourge.core.crew import Crew
from fourge.core.errors import ConfigError, DataError, FormatError
from fourge.formats.safetensors_file import read_safetensors
from fourge.harness import setup
from fourge.harness.setup import Ready, check, make_ready
from fourge.harness.training import train
from fourge.model.swap import nvfp4_layers
from fourge.train.loop import StepResult
from fourge.train.teacher import TeacherCache
from tests.harness.samples import held, quiet, run_of

Folder = Callable[..., Path]


@pytest.fixture
def model(tiny_folder: Folder) -> Path:
    return tiny_folder("qwen3", tied=True)


def ready_of(folder: Path, base: Path, /, **sections: Any) -> Ready:
    return make_ready(check(run_of(folder, base, **sections), quiet), quiet)


@pytest.mark.parametrize(
    ("sections", "error", "said"),
    [
        ({"data": {"template": {"tokenize": True}}}, ConfigError, "'tokenize'"),
        ({"optim": {"warmup": 50}}, ConfigError, "50 steps of warm-up"),
        ({"model": {"path": "/nowhere"}}, FormatError, "/nowhere"),
    ],
)
def test_what_cannot_be_is_refused_before_a_weight_is_loaded(
    model: Path, tmp_path: Path, sections: dict[str, Any], error: type[Exception], said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a weight was loaded")

    monkeypatch.setattr(setup, "load_model", refuse)
    with pytest.raises(error) as caught:
        check(run_of(tmp_path, model, **sections), quiet)
    assert said in str(caught.value)


def test_every_bad_row_is_named(model: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path, model)
    (tmp_path / "a.tsv").write_text("who?\nwhy?\tbecause\nhow?\tsaid <|im_end|>\n")
    (tmp_path / "b.jsonl").write_text('{"prompt": 3}\n')
    with pytest.raises(DataError) as caught:
        check(run, quiet)
    for place in ("a.tsv", "b.jsonl"):
        assert place in str(caught.value)


def test_progress_tells_rows_and_tensors_to_their_ends(model: Path, tmp_path: Path) -> None:
    seen: dict[str, list[tuple[int, int]]] = {}

    def note(what: str, done: int, total: int) -> None:
        seen.setdefault(what, []).append((done, total))

    run = run_of(tmp_path, model, **held(tmp_path))
    make_ready(check(run, note), note)
    assert list(seen) == ["reading data", "loading the model", "asking the base model"]
    for steps in seen.values():
        counts = [done for done, _ in steps]
        assert counts == sorted(set(counts))
        assert steps[-1][0] == steps[-1][1]


@pytest.mark.parametrize("kind", ["dense", "nvfp4"])
def test_a_model_in_nvfp4_is_no_distance_from_the_teacher_that_it_was(
    model: Path, tmp_path: Path, kind: str
) -> None:
    sections = held(tmp_path)
    sections["train"] |= {"kl_teacher": kind, "steps": 1, "batch": 5}
    sections["model"] = {"compute_dtype": "float32"}  # bf16 rounds by the shape of a batch, too
    (step,) = [e for e in train(run_of(tmp_path, model, **sections)) if isinstance(e, StepResult)]
    assert step.kl is not None
    assert (abs(step.kl) < 1e-6) == (kind == "nvfp4")


def test_settings_reach_the_optimizer_the_plan_and_the_model(model: Path, tmp_path: Path) -> None:
    optim = {"lr": 2e-4, "beta1": 0.8, "beta2": 0.9, "eps": 1e-6, "weight_decay": 0.02,
             "clip": 0.7, "clip_method": "two-pass", "moments": "nvfp4", "master": "bf16+8",
             "chunk_rows": 9, "schedule": "linear", "final_lr": 0.25, "warmup": 2,
             "groups": [{"names": ["*embed_tokens*"], "lr": 1e-6}]}  # fmt: skip
    train = {"loss_chunk": 5, "seed": 11, "last_layers": None}
    ready = ready_of(tmp_path, model, optim=optim, train=train)
    optimizer, plan = ready.optimizer, ready.plan
    first, rest = optimizer.param_groups
    assert (first["lr"], rest["lr"]) == (1e-6, 2e-4)
    assert len(first["params"]) == 1
    assert rest["betas"] == (0.8, 0.9)
    assert (rest["eps"], rest["weight_decay"]) == (1e-6, 0.02)
    assert (optimizer.clip, optimizer.clip_method, optimizer.seed) == (0.7, "two-pass", 11)
    assert (optimizer.moments, optimizer.master, optimizer.chunk_rows) == ("nvfp4", "bf16+8", 9)
    assert plan.chunk == 5
    assert plan.release
    assert (plan.schedule.name, plan.schedule.steps, plan.schedule.warmup) == ("linear", 6, 2)
    assert plan.schedule.final == 0.25
    assert plan.teacher is None
    assert len(optimizer.state) == len(optimizer.named())  # allocated up front
    assert len(nvfp4_layers(ready.model)) == 14


def test_a_group_that_matches_nothing_is_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nobody"):
        ready_of(tmp_path, model, optim={"groups": [{"names": ["nobody"], "lr": 1e-6}]})


def test_layers_that_rest_are_for_one_process(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Two(Crew):
        size = 2

    groups = [{"lower": 0.5, "every": 4}]
    (lower, other) = ready_of(tmp_path, model, optim={"groups": groups}).optimizer.param_groups
    assert lower["every"] == 4
    assert "every" not in other
    checked = check(run_of(tmp_path, model, optim={"groups": groups}), quiet)
    monkeypatch.delattr(setup, "load_model")
    with pytest.raises(ConfigError, match="several processes"):
        make_ready(checked, quiet, Two())


def test_the_micro_batches_of_steps_follow_each_other(model: Path, tmp_path: Path) -> None:
    train = {"batch": 1, "accumulate": 2, "release": False}
    ready = ready_of(tmp_path, model, train=train, data={"order": "sequential"})
    rows = [batch.rows for step in (1, 2, 3) for batch in ready.plan.batches(step)]
    assert rows == [ready.checked.dataset.batch(number, 1).rows for number in range(6)]
    assert len(set(rows[:5])) == 5  # an epoch


def test_the_base_model_is_asked_before_it_is_quantised_and_once(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    ask = setup.ask_base  # type: ignore[attr-defined]

    def watch(network: Any, *args: Any, **kwargs: Any) -> TeacherCache:
        asked.append(len(nvfp4_layers(network)))
        cache: TeacherCache = ask(network, *args, **kwargs)
        return cache

    monkeypatch.setattr(setup, "ask_base", watch)
    one = ready_of(tmp_path, model, **held(tmp_path))
    two = ready_of(tmp_path, model, **held(tmp_path))
    assert asked == [0]
    assert one.plan.teacher is not None
    assert two.plan.teacher is not None
    batch = one.plan.batches(1)[0]
    assert torch.equal(one.plan.teacher(batch).log_p_TK, two.plan.teacher(batch).log_p_TK)
    assert one.plan.teacher(batch).has_T.tolist() == [
        row[0] == 1
        for row, count in zip(batch.rows, (batch.target_BT != -100).sum(1).tolist(), strict=True)
        for _ in range(count)
    ]
    sections = held(tmp_path)
    sections["train"]["kl_top_k"] = 3
    ready_of(tmp_path, model, **sections)
    assert asked == [0, 0]


def test_the_base_model_is_asked_about_what_will_be_drawn_and_no_more(
    model: Path, tmp_path: Path
) -> None:
    sections = held(tmp_path)
    sections["train"] |= {"steps": 1, "batch": 1, "accumulate": 2, "release": False}
    ready = ready_of(tmp_path, model, **sections)
    drawn = {row for batch in ready.plan.batches(1) for row in batch.rows}
    (file,) = (tmp_path / "out").glob("teacher-*")
    names = read_safetensors(file)
    assert {name for name in names if name.startswith("token.")} == {
        f"token.{file}.{row}" for file, row in drawn if file == 1
    }
    assert 0 < len(names) < 2 * ready.checked.dataset.rows[1]


def test_w4a4_is_calibrated(model: Path, tmp_path: Path) -> None:
    layers = nvfp4_layers(ready_of(tmp_path, model, model={"scheme": "w4a4"}).model)
    assert all(layer.input_scale is not None for layer in layers.values())


def test_a_device_that_is_not_there_is_refused(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="no CUDA device"):
        ready_of(tmp_path, model, model={"device": "cuda"})
