from typing import Any

import pytest
from pydantic import ValidationError

from fourge.config.run import Run
from tests.config.samples import Load, refused, tree


@pytest.mark.parametrize(
    ("sections", "at", "word"),
    [
        ({"train": {}}, "train.steps", "is required (or train.epochs)"),
        ({"train": None}, "train.steps", "is required (or train.epochs)"),
        ({"train": {"steps": 1, "epochs": 2}}, "train.epochs", "set one of them to null"),
        ({"train": {"steps": 1, "accumulate": 2}}, "train.accumulate", "train.release: false"),
        ({"optim": {"clip_method": "global"}}, "optim.clip_method", "two-pass or tensor"),
        (
            {"optim": {"clip_method": "tensor"}, "train": {"steps": 1, "release": False}},
            "optim.clip_method",
            "global or auto",
        ),
        (
            {"optim": {"clip_method": "two-pass"}, "train": {"steps": 1, "release": False}},
            "optim.clip_method",
            "global or auto",
        ),
        ({"optim": {"beta2": 0.81}}, "optim.beta2", "raise beta2 above 0.81"),
        ({"optim": {"beta2": "5e-1", "moments": "nvfp4"}}, "optim.beta2", "has no bound"),
        ({"optim": {"master": "nvfp4"}, "model": {"path": "x", "scheme": "none"}},
         "optim.master", "model.scheme: w4a16"),
        ({"data": {"mix": [{"path": "a.jsonl", "weight": 0}]}}, "data.mix", "every weight is 0"),
        ({"train": {"steps": 1, "kl_to_base": 1}}, "train.kl_to_base", "add learn: base"),
        ({"train": {"steps": 1, "kl_budget": 1}}, "train.kl_budget", "no weight to follow it"),
        ({"data": {"mix": [{"path": "a.jsonl", "learn": "base"}]}},
         "train.kl_to_base", "set it to 1.0"),
    ],
)  # fmt: skip
def test_settings_that_exclude_each_other_are_refused(
    load: Load, sections: dict[str, Any], at: str, word: str
) -> None:
    (line,) = refused(load, **sections)
    assert line.startswith(f"{at}: ")
    assert word in line


@pytest.mark.parametrize(
    "sections",
    [
        {"train": {"epochs": 0.5}},
        {"train": {"steps": 1, "accumulate": 2, "release": False}},
        {"train": {"steps": 1, "release": False}, "optim": {"clip_method": "global"}},
        {"optim": {"clip_method": "two-pass"}},
        {"optim": {"beta2": 0.5, "moments": "fp32"}},
        {"optim": {"beta1": 0.9, "beta2": 0.8101}},
        {"optim": {"master": "nvfp4"}, "model": {"path": "x", "scheme": "w4a4"}},
        {"optim": {"clip": None, "chunk_rows": 4, "final_lr": 1, "warmup": 100}},
        {
            "data": {"mix": [{"path": "a.jsonl", "learn": "base"}]},
            "train": {"steps": 1, "kl_to_base": "1e-1"},
        },
        {"data": {"mix": [{"path": "a.jsonl", "weight": 0}, {"path": "b.jsonl", "weight": 2}]}},
    ],
)
def test_settings_that_go_together_are_taken(load: Load, sections: dict[str, Any]) -> None:
    assert isinstance(load(**sections), Run)


def test_a_rule_reads_a_number_that_yaml_takes_for_text(load: Load) -> None:
    found = refused(load, out=None, train={"steps": 1, "kl_to_base": "1e-1"})
    assert found[0] == "out: is required"
    assert found[1].startswith("train.kl_to_base: is 0.1 and no entry")


def test_a_rule_is_not_judged_on_a_setting_that_is_itself_wrong(load: Load) -> None:
    found = refused(load, train={"steps": 1, "accumulate": 2, "release": "no idea"})
    assert found == ["train.release: is 'no idea'; it must be true or false"]


def test_a_whole_section_that_is_wrong_is_one_mistake(load: Load) -> None:
    assert refused(load, train=3) == ["train: is 3; it must be settings, as in {name: value}"]
    assert refused(load, data=None) == ["data: is required"]


def test_a_run_made_in_code_keeps_the_rules_too() -> None:
    with pytest.raises(ValidationError, match="a released gradient"):
        Run.model_validate(tree(train={"steps": 1, "accumulate": 2}))
