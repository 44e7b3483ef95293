import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from fourge.cli.check import check
from fourge.core.errors import ConfigError
from fourge.evaluate import check as evaluate
from fourge.evaluate import tasks as tasks_module
from fourge.evaluate.answers import Said
from fourge.evaluate.check import Questions
from fourge.evaluate.probes import version_of
from fourge.evaluate.verdict import Results, gate_of_rights

Folder = Callable[..., Path]


@pytest.fixture
def model(tiny_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("fourge.evaluate.perplexity._CHARACTERS", 60)
    return str(tiny_folder("qwen3"))


def test_a_model_that_was_taught_nothing_fails_and_is_shown_why(model: str) -> None:
    args = [model, "--base", model, "--name", "F# 之神", "--limit", "4"]
    result = CliRunner().invoke(check, args)
    assert result.exit_code == 1, result.output
    for text in ("identity          4", "F# 之神 is missing", "and 1 more", "undecided",
                 "not every gate passes"):  # fmt: skip
        assert text in " ".join(result.stdout.split("\n")), text
    as_json = CliRunner().invoke(check, [*args, "--json"])
    content = json.loads(as_json.stdout)
    assert not content["passed"]
    assert [gate["name"] for gate in content["gates"]][:3] == ["identity", "separation", "leak"]
    assert content["probes"]["identity"] == version_of("identity")
    assert any(failure["gate"] == "identity" for failure in content["failures"])


def test_a_model_that_passes_leaves_with_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(model: str, questions: Questions, *how: object, path: str = "auto") -> Results:
        texts = {"identity": "我是 F# 之神。", "abilities": "?"}
        said = [Said(texts.get(probe.set, "好。"), 3, True) for probe in questions.probes]
        for at, probe in enumerate(questions.probes):
            if probe.set == "abilities":
                said[at] = Said(probe.accepted[0], 1, True)
        return Results(tuple(said), (2.0,) * len(questions.pieces))

    monkeypatch.setattr(evaluate, "ask", answer)
    monkeypatch.setattr(evaluate, "open_any", lambda model: None)
    monkeypatch.setattr(evaluate, "path_of_base", lambda model: "packed")
    result = CliRunner().invoke(check, ["m", "--base", "b", "--name", "F# 之神"])
    assert result.exit_code == 0, result.output
    assert "every gate passes" in result.stdout
    assert "the base is asked in NVFP4 too" in result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 80
    old = CliRunner().invoke(check, ["m", "--name", "F# 之神", "--old-name", "之神"])
    assert old.exit_code == 0  # a part of the new name is no rival
    renamed = CliRunner().invoke(check, ["m", "--name", "Zed", "--old-name", "F# 之神"])
    assert renamed.exit_code == 1
    assert "F# 之神 is claimed" in renamed.stdout


def test_a_task_is_one_more_gate_and_can_be_the_one_that_fails(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gates(tuned: str, base: str, tasks: object, **how: object) -> object:
        assert (tasks, how["limit"], how["margin"]) == (["arc_easy", "my.yaml"], 7, 0.1)
        return [gate_of_rights("task arc_easy", [True] * 9, [False] * 9, 0.1)]

    monkeypatch.setattr(tasks_module, "find_tasks", list)
    monkeypatch.setattr(tasks_module, "task_gates", gates)
    args = [model, "--base", model, "--limit", "1", "--margin", "0.1", "--task-limit", "7",
            "--task", "arc_easy", "--task", "my.yaml"]  # fmt: skip
    result = CliRunner().invoke(check, args)
    assert result.exit_code == 1, result.output
    assert "task arc_easy     9  100.0%    0.0%  >= base - 10%       fail" in result.stdout


def test_a_task_without_a_base_and_a_limit_without_a_task_are_refused() -> None:
    alone = CliRunner().invoke(check, ["m", "--name", "Al", "--task", "arc_easy"])
    assert (alone.exit_code, "Give --base" in alone.output) == (2, True)
    limit = CliRunner().invoke(check, ["m", "--base", "b", "--task-limit", "4"])
    assert (limit.exit_code, "Give --task" in limit.output) == (2, True)


def test_nothing_to_judge_and_unknown_languages_are_refused() -> None:
    assert CliRunner().invoke(check, ["m"]).exit_code == 2
    result = CliRunner().invoke(check, ["m", "--name", "Al", "--languages", "tlh"])
    assert isinstance(result.exception, ConfigError)
