from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from fourge.config.run import Run
from tests.config.samples import Load, refused, tree


@pytest.mark.parametrize(
    ("name", "least", "too_little"),
    [
        ("data.max_tokens", "8", "7"),
        ("train.steps", "1", "0"),
        ("train.batch", "1", "0"),
        ("train.accumulate", "1", "0"),
        ("train.loss_chunk", "1", "0"),
        ("train.kl_to_base", "0", "-0.1"),
        ("train.kl_top_k", "1", "0"),
        ("train.last_layers", "1", "0"),
        ("train.save_every_steps", "1", "0"),
        ("train.save_every_minutes", "1e-9", "0"),
        ("train.keep_checkpoints", "1", "0"),
        ("optim.lr", "1e-9", "0"),
        ("optim.warmup", "0", "-0.1"),
        ("optim.final_lr", "0", "-0.1"),
        ("optim.final_lr", "1", "1.1"),
        ("optim.beta1", "0", "-0.1"),
        ("optim.beta1", "0.97", "1"),
        ("optim.beta2", "0.999", "1"),
        ("optim.eps", "1e-30", "0"),
        ("optim.weight_decay", "0", "-0.1"),
        ("optim.clip", "1e-9", "0"),
        ("optim.chunk_rows", "1", "0"),
        ("data.mix.0.weight", "1e-9", "-1"),
        ("guard.over_s", "0", "-1"),
        ("guard.grace_s", "0", "-1"),
        ("guard.silent_s", "0", "-1"),
    ],
)
def test_every_setting_has_its_bounds(load: Load, name: str, least: str, too_little: str) -> None:
    load(f"{name}={least}")
    (line,) = refused(load, f"{name}={too_little}")
    assert line.startswith(f"{name}: is {too_little}; it must be ")


@pytest.mark.parametrize("name", ["memory.limit", "guard.floor"])
def test_a_size_has_a_unit_or_is_auto(load: Load, name: str) -> None:
    for text in ("auto", "100GiB", "8G", "1.5 T"):
        load(f"{name}={text}")
    for text in ("'100'", "8GB", "none", "0GiB"):
        (line,) = refused(load, f"{name}={text}")
        assert line.startswith(f"{name}: "), text


@pytest.mark.parametrize(("name", "least"), [("lr", "0"), ("weight_decay", "0")])
def test_a_group_has_its_bounds(load: Load, name: str, least: str) -> None:
    load(f"optim.groups=[{{names: ['*.norm.*'], {name}: {least}}}]")
    load(f"optim.groups=[{{lower: 0.5, {name}: {least}}}]")
    found = refused(load, f"optim.groups=[{{lower: 2, {name}: -1}}, {{names: []}}]")
    assert found == [
        "optim.groups.0.lower: is 2; it must be 1 or less",
        f"optim.groups.0.{name}: is -1; it must be 0 or more",
        "optim.groups.1: a group needs names or lower: the layers it is for",
    ]


def test_only_lower_layers_can_rest(load: Load) -> None:
    load("optim.groups=[{lower: 0.5, every: 4}, {names: ['*.norm.*'], every: 1}]")
    found = refused(load, "optim.groups=[{names: ['*.norm.*'], every: 2}, {lower: 1, every: 0}]")
    assert found == [
        "optim.groups.0: every needs lower: only what is below the rest can be left out",
        "optim.groups.1.every: is 0; it must be 1 or more",
    ]


def test_a_run_made_in_code_may_name_data_that_is_gone() -> None:
    run = Run.model_validate(tree())
    assert run.data.mix[0].path == Path.cwd() / "a.jsonl"


def test_paths_are_taken_from_the_folder_of_the_file(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "weights").mkdir()
    monkeypatch.chdir("/")
    run = load(model={"path": "weights"}, out="../beside")
    assert run.model.path == str(tmp_path / "weights")
    assert run.data.mix[0].path == tmp_path / "a.jsonl"
    assert run.out == tmp_path.parent / "beside"


def test_the_name_of_a_model_is_left_alone(load: Load) -> None:
    for name in ("Qwen/Qwen3-4B", "smollm2-135m", "x" * 5000):
        assert load(model={"path": name}).model.path == name


@pytest.mark.parametrize("path", ["", "\0", "~nobody-has-this-name/x", 3, None, ["a"]])
def test_a_path_that_cannot_be_is_a_mistake(load: Load, path: Any) -> None:
    (line,) = refused(load, f"out={yaml.safe_dump(path)}")
    assert line.startswith("out: is ")
    assert "it must be a path" in line


def test_data_that_cannot_be_read_is_a_mistake(load: Load, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    found = refused(load, data={"mix": [{"path": "folder"}, {"path": "x" * 300}]})
    assert ["Is a directory" in found[0], "name too long" in found[1]] == [True, True]


@pytest.mark.parametrize(
    ("template", "word"),
    [
        ("{a: 2020-01-01}", "2020-01-01 is neither text nor a number"),
        ("{a: [{b: .nan}]}", "nan is not a finite number"),
        ("{a: {1: 2}}", "the name 1 is not text"),
        ("[1]", "is a list; it must be settings"),
    ],
)
def test_template_arguments_are_what_json_can_hold(load: Load, template: str, word: str) -> None:
    (line,) = refused(load, f"data.template={template}")
    assert line.startswith("data.template: ")
    assert word in line


@pytest.mark.parametrize(
    ("given", "meant"), [("true", "block"), ("false", "none"), ("light", "light")]
)
def test_recompute_may_be_a_yes_or_a_no(load: Load, given: str, meant: str) -> None:
    assert load(f"train.recompute={given}").train.recompute == meant


@pytest.mark.parametrize(
    ("given", "nbytes"), [("auto", None), ("100GiB", 100 << 30), ("512 MiB", 512 << 20)]
)
def test_a_limit_is_auto_or_a_size(load: Load, given: str, nbytes: int | None) -> None:
    assert load(memory={"limit": given}).memory.limit_bytes == nbytes


@pytest.mark.parametrize("given", ["100", "lots", "100GB"])
def test_any_other_limit_is_a_mistake(load: Load, given: str) -> None:
    (line,) = refused(load, memory={"limit": given})
    assert line == f"memory.limit: is '{given}'; it must be auto or a size, as 100GiB"
