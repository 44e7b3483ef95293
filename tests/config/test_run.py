import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fourge.config.run import Run, difference, load_run
from fourge.core.errors import ConfigError, FormatError
from tests.config.samples import Load, refused


def test_the_defaults_are_those_of_the_documents(load: Load, tmp_path: Path) -> None:
    assert load().model_dump(mode="json") == {
        "model": {
            "path": "smollm2-135m", "scheme": "w4a16",
            "keep_bf16": ["embed_tokens", "lm_head", "norm"],
            "backend": "auto", "compute_dtype": "auto", "device": "auto",
        },
        "data": {
            "mix": [{"path": str(tmp_path / "a.jsonl"), "weight": None, "learn": "answer"}],
            "max_tokens": 512, "order": "random", "template": {},
        },
        "train": {
            "steps": 10, "epochs": None, "batch": 8, "accumulate": 1, "seed": 0,
            "recompute": "block", "release": True, "loss_chunk": None, "kl_to_base": 0.0,
            "kl_budget": None, "kl_top_k": 32, "kl_teacher": "dense", "last_layers": None,
            "save_every_steps": None,
            "save_every_minutes": 10.0, "keep_checkpoints": 2,
        },
        "optim": {
            "lr": 1e-5, "schedule": "cosine", "warmup": 0.05, "final_lr": 0.0,
            "master": "bf16", "moments": "int8", "beta1": 0.9, "beta2": 0.95, "eps": 1e-8,
            "weight_decay": 0.0, "clip": 1.0, "clip_method": "auto", "chunk_rows": None,
            "groups": [],
        },
        "memory": {"limit": "auto"},
        "guard": {
            "enabled": True, "floor": "auto", "over_s": 0.0, "grace_s": 20.0, "silent_s": 1800.0,
        },
        "out": str(tmp_path / "runs" / "x"),
    }  # fmt: skip


def test_every_mistake_is_said_at_once(load: Load, tmp_path: Path) -> None:
    found = refused(
        load,
        "train.wormup=3",
        "lr",
        model={"pth": "x", "scheme": "w4a8"},
        data={"mix": [{"path": "a.jsonl", "weight": 1}, {"path": "c.jsonl"}], "max_tokens": 7},
        train={"accumulate": 4, "batch": "8", "steps": 0},
        optim={"lr": "abc", "lrr": 1, "moments": "int4", "clip_method": "global"},
        out=None,
        gard={},
    )
    assert found == [
        "--set lr: a setting is written as name=value, as in optim.lr=2e-5",
        "model.path: is required",
        "model.scheme: is 'w4a8'; one of: w4a16, w4a4, none; did you mean w4a4?",
        "model.pth: no such setting; did you mean path?",
        f"data.mix.1.path: {tmp_path}/c.jsonl could not be read: No such file or directory",
        "data.max_tokens: is 7; it must be 8 or more",
        "train.steps: is 0; it must be 1 or more",
        "train.batch: is '8'; it must be a whole number",
        "train.wormup: no such setting; did you mean optim.warmup?",
        "optim.lr: is 'abc'; it must be a number",
        "optim.moments: is 'int4'; one of: fp32, int8, nvfp4; did you mean int8?",
        "optim.lrr: no such setting; did you mean lr?",
        "out: is required",
        "gard: no such setting; did you mean guard?",
        "data.mix: 1 of 2 entries have no weight; give every entry one, or none",
        "train.accumulate: is 4 with train.release true; a released gradient is gone before the "
        "next could be added to it; set train.release: false",
        "optim.clip_method: is 'global' with train.release true; the norm of all gradients is "
        "known only when the first are gone; choose two-pass or tensor, or set "
        "train.release: false",
    ]


def test_a_relative_name_of_the_file_will_do(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load()
    monkeypatch.chdir(tmp_path)
    assert load_run(Path("run.yaml")).out == tmp_path / "runs" / "x"
    with pytest.raises(ConfigError, match=r"^run\.yaml is not a valid run file\.\n  a: no such"):
        load_run(Path("run.yaml"), ["a=1"])


def test_settings_on_the_command_line_win(load: Load, tmp_path: Path) -> None:
    run = load(
        "optim.lr=2e-5",
        "train.steps=null",
        "train.epochs=1",
        "data.mix.0.weight=3",
        "data.template.enable_thinking=false",
        "model.keep_bf16=[lm_head]",
        "out=elsewhere",
    )
    assert run.optim.lr == 2e-5
    assert (run.train.steps, run.train.epochs) == (None, 1.0)
    assert run.data.mix[0].weight == 3.0
    assert run.data.template == {"enable_thinking": False}
    assert run.model.keep_bf16 == ("lm_head",)
    assert run.out == tmp_path / "elsewhere"


def test_a_file_that_is_not_a_mapping_is_refused(tmp_path: Path) -> None:
    for text, what in (("- 1\n", "a list"), ("hello\n", "'hello'")):
        (tmp_path / "run.yaml").write_text(text)
        with pytest.raises(ConfigError, match="is not a run file") as caught:
            load_run(tmp_path / "run.yaml")
        assert caught.value.why == f"it holds {what}, not settings"


def test_a_key_given_twice_is_a_mistake_even_if_all_else_is_right(
    load: Load, tmp_path: Path
) -> None:
    load()
    path = tmp_path / "run.yaml"
    path.write_text(path.read_text() + "out: other\n")
    with pytest.raises(ConfigError, match=r"out: is given twice, on lines \d+ and \d+"):
        load_run(path)


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | names,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=5,
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lr=st.floats(1e-30, 1e30),
    keep=st.lists(names, max_size=3),
    template=st.dictionaries(names, plain, max_size=3),
    weight=st.floats(1e-300, 1e300),
)
def test_a_run_written_out_reads_back_as_itself(
    load: Load, tmp_path: Path, lr: float, keep: list[str], template: Any, weight: float
) -> None:
    data = {"mix": [{"path": "a.jsonl", "weight": weight}], "template": template}
    groups = [{"names": ["*"], "lr": 0.0}]
    model = {"path": "x", "keep_bf16": keep}
    run = load(model=model, data=data, optim={"lr": lr, "groups": groups})
    (tmp_path / "sub").mkdir(exist_ok=True)
    (tmp_path / "sub" / "copy.yaml").write_bytes(run.to_yaml().encode())
    again = load_run(tmp_path / "sub" / "copy.yaml")
    assert again == run
    assert again.digest() == run.digest()
    assert difference(run, again) == []


def test_the_digest_does_not_depend_on_how_the_file_was_written(load: Load) -> None:
    one = load(optim={"lr": 1.0})
    assert load(optim={"lr": 1}).digest() == one.digest()
    assert load(optim={"lr": "1e0"}).digest() == one.digest()
    assert load(optim={"lr": 1.0, "eps": 1e-7}).digest() != one.digest()
    assert len(one.digest()) == 32
    first, second = load("data.template={a: 1, b: 2}"), load("data.template={b: 2, a: 1}")
    assert first.digest() == second.digest()


def test_the_difference_of_two_runs_is_said_setting_by_setting(load: Load, tmp_path: Path) -> None:
    one = load(optim={"lr": 1e-5}, data={"mix": [{"path": "a.jsonl"}], "template": {"a": "1"}})
    other = load(
        optim={"lr": 2e-5},
        data={"mix": [{"path": "a.jsonl"}, {"path": "b.jsonl"}], "template": {"a": 1, "b": None}},
        model={"path": "other"},
    )
    assert difference(one, other) == [
        'model.path: "smollm2-135m" -> "other"',
        f'data.mix.1: nothing -> {{"path": "{tmp_path}/b.jsonl", "weight": null, '
        '"learn": "answer"}',
        'data.template.a: "1" -> 1',
        "data.template.b: nothing -> null",
        "optim.lr: 1e-05 -> 2e-05",
    ]


def test_reading_a_run_file_does_not_load_torch(load: Load, tmp_path: Path) -> None:
    load()
    script = (
        "import sys; from pathlib import Path; from fourge.config.run import load_run\n"
        "load_run(Path(sys.argv[1])); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "run.yaml")], check=True)


@pytest.mark.parametrize("text", ["model: {", "model: {path: m, gone: 1}", "3"])
def test_recorded_settings_of_another_version_are_refused_in_words(text: str) -> None:
    with pytest.raises(FormatError, match="recorded settings") as caught:
        Run.from_yaml(text)
    assert caught.value.why
