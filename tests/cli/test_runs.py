import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fourge.cli.runs import runs
from fourge.core.errors import FormatError
from fourge.nvfp4 import compiled
from tests.harness.experiment_samples import few_questions, happens, plan_of, scripted

Folder = Callable[..., Path]


@pytest.fixture(scope="module")
def folder(tiny_folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two experiments: one that failed at first, one that passed."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "_can_compile", lambda device: False)
        few_questions(patch, folder / "cache")
        scripted(patch, ["broken", "good"], {"02-share-0.5": "good"})
        base = tiny_folder("qwen3", tied=True)
        happens(plan_of(folder / "one", base))
        happens(plan_of(folder / "two", base, train={"steps": 2}))
    return folder


def called(*args: str | Path) -> Result:
    return CliRunner().invoke(runs, [str(each) for each in args])


def test_list_has_two_lines_each_and_json(folder: Path) -> None:
    shown = called("list", folder)
    assert shown.exit_code == 0, shown.output
    lines = shown.stdout.splitlines()
    assert len(lines) == 2 * len(json.loads(called("list", folder, "--json").stdout))
    assert lines[0].endswith("experiment  one/out")
    assert lines[1].strip() == "passed"
    assert "ended: degeneration" in shown.stdout


def test_show_tells_what_was_made_and_what_became_of_it(folder: Path) -> None:
    shown = called("show", folder / "one" / "out")
    assert "02-step-2-share-0.5  passed" in shown.stdout
    assert "01  failed" in shown.stdout
    assert str(folder / "one" / "out" / "trash" / "01-1") in shown.stdout
    content = json.loads(called("show", folder / "one" / "out", "--json").stdout)
    assert content["state"] == "passed"
    assert [a["name"] for a in content["artifacts"]][:3] == ["start", "data", "base"]


def test_diff_leaves_with_one_if_anything_differs(folder: Path) -> None:
    one, two = folder / "one" / "out", folder / "two" / "out"
    shown = called("diff", one, two)
    assert shown.exit_code == 1
    assert "train.steps: 4 -> 2" in shown.stdout
    assert called("diff", one, one).exit_code == 0
    assert "train.steps: 4 -> 2" in json.loads(called("diff", one, two, "--json").stdout)


def test_trace_leaves_with_one_if_something_is_not_what_it_was(folder: Path) -> None:
    export = folder / "one" / "out" / "export"
    shown = called("trace", export / "model.safetensors")
    assert shown.exit_code == 0, shown.output
    names = [line.split()[0] for line in shown.stdout.splitlines() if not line.startswith(" ")]
    assert names == ["02-step-2-share-0.5", "02", "data", "start"]
    links = json.loads(called("trace", export, "--json").stdout)
    assert [link["name"] for link in links] == names
    (export / "extra").touch()
    changed = called("trace", export)
    (export / "extra").unlink()
    assert changed.exit_code == 1
    assert "(changed)" in changed.stdout


def test_devlog_is_written_anew_in_another_language(folder: Path) -> None:
    shown = called("devlog", folder / "one" / "out", "--lang", "zh-TW")
    assert shown.exit_code == 0
    assert "過程紀錄" in (folder / "one" / "out" / "devlog.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("verb", ["list", "show", "trace", "devlog"])
def test_what_is_not_there_is_refused(verb: str, tmp_path: Path) -> None:
    assert isinstance(called(verb, tmp_path / "nowhere").exception, FormatError)
