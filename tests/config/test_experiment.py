from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from fourge.config.experiment import Experiment, load_experiment
from fourge.core.errors import ConfigError


def load(folder: Path, *settings: str, **sections: Any) -> Experiment:
    least = {
        "model": {"path": "smollm2-135m"},
        "identity": {"name": "Ada"},
        "train": {"steps": 10},
        "out": "x",
    }
    (folder / "e.yaml").write_text(yaml.safe_dump({**least, **sections}))
    return load_experiment(folder / "e.yaml", settings)


def refused(folder: Path, *settings: str, **sections: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, *settings, **sections)
    return str(caught.value)


def test_the_least_is_a_run_that_learns_two_files_and_is_held_to_the_base_on_four(
    tmp_path: Path,
) -> None:
    plan = load(tmp_path)
    run = plan.run(0)
    assert [(e.path.name, e.weight, e.learn) for e in run.data.mix] == [
        ("identity.jsonl", 2, "answer"),
        ("told.jsonl", 1, "answer"),
        ("contrast.jsonl", 1, "base"),
        ("replay.jsonl", 2, "base"),
        ("later.jsonl", 1, "alone"),
        ("tempted.jsonl", 1, "base"),
    ]
    assert run.out == tmp_path / "x" / "attempts" / "01"
    assert run.train.kl_to_base == 1
    assert len(plan.attempts) == 1
    assert plan.scan == (0.4, 0.6, 0.8)


def test_it_reads_back_as_itself(tmp_path: Path) -> None:
    plan = load(tmp_path, attempts=[["optim.lr=1e-6"], []], scan=[])
    assert Experiment.from_yaml(plan.to_yaml()) == plan
    assert plan.digest() != load(tmp_path).digest()


def test_an_attempt_changes_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    plan = load(tmp_path, "optim.lr=3e-5",
                attempts=[[], ["optim.lr=1e-6", "mix.identity=5", "train.steps=7"]])  # fmt: skip
    one, two = plan.run(0), plan.run(1)
    assert (one.optim.lr, two.optim.lr) == (3e-5, 1e-6)
    assert (one.train.steps, two.train.steps) == (10, 7)
    assert two.data.mix[0].weight == 5
    assert two.out.name == "02"
    assert one.model == two.model == plan.model


def test_parts_can_be_switched_off(tmp_path: Path) -> None:
    plain = load(tmp_path, train={"steps": 1, "kl_to_base": 0}).run(0)
    assert {entry.learn for entry in plain.data.mix} == {"answer"}
    assert "tempted" not in {entry.path.stem for entry in plain.data.mix}
    less = load(tmp_path, mix={"replay": 0}).run(0)
    assert [entry.path.stem for entry in less.data.mix] == [
        "identity", "told", "contrast", "later", "tempted",
    ]  # fmt: skip
    off = load(tmp_path, gates={"early_stop": False, "collapse": None}, scan=[])
    assert off.gates.collapse is None


def test_mistakes_in_attempts_are_named_with_their_place(tmp_path: Path) -> None:
    said = refused(tmp_path, attempts=[["optim.lrr=1"], ["model.path=x"], ["what"],
                                       ["train.accumulate=2"]])  # fmt: skip
    for text in (
        "attempts.0.optim.lrr: no such setting; did you mean lr?",
        "attempts.1: model.path=x: an attempt can change train, optim and mix only",
        "attempts.2: --set what: a setting is written as name=value",
        "attempts.3.train.accumulate: is 2 with train.release true",
    ):
        assert text in said


@pytest.mark.parametrize(
    ("sections", "text"),
    [
        ({"gate": {}}, "gate: no such setting; did you mean gates?"),
        ({"scan": [0.5, 0.4]}, "must ascend"),
        ({"scan": [0.5, 1.0]}, "between 0 and 1"),
        ({"scan": [0]}, "between 0 and 1"),
        ({"attempts": []}, "attempts: is empty"),
        ({"model": {"path": "x", "scheme": "w4a4"}}, "model.scheme: is 'w4a4'"),
        ({"train": {}}, "train.steps: is required (or train.epochs)"),
        (
            {"mix": {"contrast": 0, "replay": 0, "later": 0, "tempted": 0}},
            "train.kl_to_base: is 1.0 and no entry",
        ),
        ({"identity": {"name": ""}}, "identity.name: is empty"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, sections: dict[str, Any], text: str) -> None:
    assert text in refused(tmp_path, **sections)
