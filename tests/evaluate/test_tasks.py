import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
import pytest
import torch

from fourge.core.errors import ConfigError
from fourge.evaluate import tasks as module
from fourge.evaluate.check import load_served
from fourge.evaluate.tasks import (
    Scores,
    Task,
    choose_metric,
    find_tasks,
    measure,
    pooled,
    task_gate,
    task_gates,
)
from tests.conftest import byte_tokenizer, tiny_model
from tests.documents import ROOT, blocks

WORDS = ("stone", "river", "cloud", "lamp", "bread", "glass", "horse", "wheel", "paper", "salt")


def quiet(what: str, done: int, total: int) -> None:
    return


def scores(*numbers: float, lower_is_better: bool = False) -> Scores:
    return Scores({("t", at): number for at, number in enumerate(numbers)}, lower_is_better)


def results(
    rows: dict[str, list[dict[str, Any]]], reported: dict[str, float], **higher: bool
) -> dict[str, Any]:
    return {
        "samples": rows,
        "results": dict.fromkeys(rows, reported),
        "higher_is_better": dict.fromkeys(rows, higher),
    }


def row(number: int, reading: str = "none", **metrics: Any) -> dict[str, Any]:
    return {"doc_id": number, "filter": reading, "metrics": list(metrics), **metrics}


def test_scores_are_taken_by_item_and_in_the_first_reading() -> None:
    rows = [row(1, "strict", acc=1.0), row(0, "strict", acc=numpy.False_), row(0, "loose", acc=1.0)]
    found = pooled(results({"t": rows}, {"acc,strict": 0.5, "acc,loose": 1.0}, acc=True))
    assert found == {"acc": Scores({("t", 1): 1.0, ("t", 0): 0.0})}


def test_only_means_over_items_with_a_known_direction_are_scores() -> None:
    rows = [row(0, acc=1, perplexity=-2.0, f1=(0, 1), odd=1.0, error=0.25),
            row(1, acc=0, perplexity=-4.0, f1=(1, 1), odd=1.0, error=0.75)]  # fmt: skip
    reported = {
        f"{name},none": number
        for name, number in {
            "acc": 0.5,
            "perplexity": 20.1,
            "f1": 0.5,
            "odd": 1.0,
            "error": 0.5,
        }.items()
    }
    higher = {"acc": True, "perplexity": False, "f1": True, "error": False}
    found = pooled(results({"t": rows}, reported, **higher))
    assert found == {"acc": scores(1, 0), "error": scores(0.25, 0.75, lower_is_better=True)}


def test_the_parts_of_a_group_are_pooled_by_what_all_of_them_have() -> None:
    one = [row(0, acc=1.0, acc_norm=1.0)]
    parts = {"a": one, "b": [row(0, acc=1.0)]}
    found = pooled(results(parts, {"acc,none": 1.0, "acc_norm,none": 1.0}, acc=True, acc_norm=True))
    assert found == {"acc": Scores({("a", 0): 1.0, ("b", 0): 1.0})}


def test_the_metric_is_the_preferred_one_that_both_have() -> None:
    some = scores(1)
    assert choose_metric("t", {"f1": some, "acc": some, "acc_norm": some}) == "acc_norm"
    assert choose_metric("t", {"acc": some, "acc_norm": some}, {"acc": some}) == "acc"
    assert choose_metric("t", {"f1": some, "recall": some}) == "f1"
    with pytest.raises(ConfigError, match="The task t has no score for each item"):
        choose_metric("t", {"acc": some}, {})


def test_right_or_wrong_items_are_compared_in_pairs() -> None:
    base, tuned = scores(*[1, 0] * 100), Scores(dict(reversed(scores(*[1, 0] * 100).of.items())))
    gate = task_gate("arc", {"acc": base}, {"acc": tuned}, 0.05)
    assert (gate.name, gate.items, gate.base, gate.tuned) == ("task arc", 200, 0.5, 0.5)
    assert gate.decision == "pass"
    assert gate.note.startswith("acc: +0.0% (")
    assert gate.paired is not None
    assert (gate.paired.p, gate.paired.disagree) == (1.0, 0)
    lost = task_gate("arc", {"acc": base}, {"acc": scores(*[0, 0] * 100)}, 0.05)
    assert (lost.decision, lost.tuned) == ("fail", 0.0)


def test_few_items_do_not_decide_and_it_is_said_how_many_would() -> None:
    rights = task_gate("t", {"acc": scores(1, 0, 1)}, {"acc": scores(1, 0, 1)}, 0.05)
    assert (rights.decision, rights.items) == ("undecided", 3)
    assert rights.note.endswith("about 52 items would decide")
    numbers = task_gate("t", {"f1": scores(0.5)}, {"f1": scores(0.5)}, 0.05)
    assert numbers.decision == "undecided"
    assert numbers.note.endswith("about 20 items would decide")


def test_other_numbers_are_compared_by_a_bootstrap_each_in_its_direction() -> None:
    base = [0.2 + 0.01 * number for number in range(50)]
    less = [number - 0.1 for number in base]
    f1 = task_gate("t", {"f1": scores(*base)}, {"f1": scores(*less)}, 0.05)
    assert (f1.decision, f1.needed) == ("fail", ">= base - 0.05")
    error, fewer = (scores(*each, lower_is_better=True) for each in (base, less))
    assert task_gate("t", {"error": error}, {"error": fewer}, 0.05).decision == "pass"
    wrong, right = (scores(*[each] * 50, lower_is_better=True) for each in (1, 0))
    assert task_gate("t", {"error": right}, {"error": wrong}, 0.05).decision == "fail"


class Shelf:
    """A stand-in for the harness's index of tasks."""

    def __init__(self, include_defaults: bool = True) -> None:
        self.shipped = include_defaults

    def load(self, specs: list[str]) -> None:
        if specs == ["nonsense"]:
            raise KeyError("nonsense")


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = ModuleType("lm_eval.tasks")
    fake.TaskManager = Shelf  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lm_eval", ModuleType("lm_eval"))
    monkeypatch.setitem(sys.modules, "lm_eval.tasks", fake)


@pytest.mark.usefixtures("shelf")
def test_tasks_are_found_by_name_and_by_file_once_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one, two = find_tasks(["arc_easy", "./mine.yaml", "arc_easy"])
    assert (one.name, one.spec, one.manager.shipped) == ("arc_easy", "arc_easy", True)
    assert (two.name, two.spec) == ("mine", str(tmp_path / "mine.yaml"))
    (file,) = find_tasks(["mine.yml"])
    assert not file.manager.shipped
    with pytest.raises(ConfigError, match="The task nonsense cannot be loaded") as caught:
        find_tasks(["arc_easy", "nonsense"])
    assert caught.value.why == "KeyError: 'nonsense'"


def test_without_the_harness_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval.tasks", None)
    with pytest.raises(ConfigError, match="lm-evaluation-harness") as caught:
        find_tasks(["arc_easy"])
    assert caught.value.fix == "pip install 'fourge[tasks]'"


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What was loaded, and how; each model is its own name."""
    found: list[tuple[str, str]] = []

    def load(model: str, served_by: str, path: str) -> tuple[str, None]:
        found.append((model, served_by))
        return model, None

    monkeypatch.setattr(module, "load_served", load)
    monkeypatch.setattr(module, "path_of_base", lambda model: "auto")
    return found


def test_only_the_tuned_model_is_served_otherwise(
    loaded: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = {"base": scores(1, 1), "tuned": scores(1, 0)}
    monkeypatch.setattr(module, "measure", lambda model, *how: {"acc": right[model]})
    told: list[tuple[str, int, int]] = []
    (gate,) = task_gates("tuned", "base", [Task("t", "t", None)], served_by="transformers",
                         progress=lambda *each: told.append(each))  # fmt: skip
    assert loaded == [("base", "fourge"), ("tuned", "transformers")]
    assert (gate.base, gate.tuned) == (1.0, 0.5)
    assert told == [("t, base", 0, 1), ("t, tuned", 0, 1)]


def test_a_task_that_cannot_be_compared_is_refused_before_the_tuned_model_is_loaded(
    loaded: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "measure", lambda *how: {})
    with pytest.raises(ConfigError, match="no score"):
        task_gates("tuned", "base", [Task("t", "t", None)], progress=quiet)
    assert loaded == [("base", "fourge")]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The task file of the documents, with twelve questions of three choices."""
    pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed")
    monkeypatch.chdir(tmp_path)
    picks = [[WORDS[(3 * at + 4 * k + k * k) % 10] for k in range(3)] for at in range(12)]
    rows = [{"question": f"Which is number {at}?", "choices": picks[at], "answer": at % 3}
            for at in range(12)]  # fmt: skip
    Path("units.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (example,) = [each for each in blocks(ROOT / "docs" / "data.md") if "units.yaml;" in each]
    text = example.strip("`").removeprefix("yaml")
    Path("units.yaml").write_text(text.replace("_kwargs: {", "_kwargs: {cache_dir: cache, "))
    return Path("units.yaml")


def likeliest(model: Any, tokenizer: Any, question: str, choices: list[str]) -> int:
    """The choice of the greatest probability, by the model's own logits."""
    start = tokenizer(f"{question}\nAnswer:")["input_ids"]
    found = []
    for choice in choices:
        token_T = torch.tensor(tokenizer(f"{question}\nAnswer: {choice}")["input_ids"])
        with torch.no_grad():
            logprob_TV = model(token_T[None]).logits[0].float().log_softmax(-1)
        tail = range(len(start), len(token_T))
        found.append(sum(float(logprob_TV[at - 1, token_T[at]]) for at in tail))
    return max(range(len(found)), key=found.__getitem__)


@pytest.mark.slow
def test_the_harness_asks_our_models_and_both_the_same_items(
    file: Path,
    tiny_folder: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = tiny_model("qwen3")
    other.model.norm.weight.data.neg_()
    other.save_pretrained(tmp_path / "tuned")
    byte_tokenizer().save_pretrained(tmp_path / "tuned")
    base, tuned = str(tiny_folder("qwen3")), str(tmp_path / "tuned")
    (task,) = find_tasks([str(file)])
    expected = []
    rows = [json.loads(line) for line in Path("units.jsonl").read_text().splitlines()]
    for each in (base, tuned):
        model, tokenizer = load_served(each, "fourge")
        picks = [likeliest(model, tokenizer, row["question"], row["choices"]) for row in rows]
        right = [float(pick == row["answer"]) for pick, row in zip(picks, rows, strict=True)]
        expected.append(right)
        measured = measure(model, tokenizer, task)
        assert measured == {"acc": Scores({("units", n): r for n, r in enumerate(right)})}
        assert list(measure(model, tokenizer, task, limit=5)["acc"].of) == list(
            measured["acc"].of)[:5]  # fmt: skip
    assert expected[0] != expected[1]
    (gate,) = task_gates(tuned, base, [task], progress=quiet, limit=10)
    assert "requests" not in capsys.readouterr().err, "a bar of the harness"
    assert (gate.name, gate.items) == ("task units", 10)
    assert (gate.base, gate.tuned) == (sum(expected[0][:10]) / 10, sum(expected[1][:10]) / 10)
    with pytest.raises(ConfigError, match="cannot be loaded"):
        find_tasks([str(tmp_path / "absent.yaml")])
