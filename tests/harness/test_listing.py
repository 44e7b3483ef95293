from collections.abc import Callable
from pathlib import Path

import pytest

from fourge.core.errors import ConfigError, FormatError
from fourge.core.events import FILE, EventLog
from fourge.harness.listing import compare, find, settings_of, summary_of, trace
from fourge.harness.training import train
from tests.harness.experiment_samples import few_questions, happens, plan_of, scripted
from tests.harness.samples import run_of, stopped_after

Folder = Callable[..., Path]


@pytest.fixture
def base(tiny_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    few_questions(monkeypatch, tmp_path / "cache")
    scripted(monkeypatch, ["good"], {"01-share-0.5": "good"})
    return tiny_folder("qwen3", tied=True)


def test_runs_and_experiments_are_found_in_the_order_they_began(base: Path, tmp_path: Path) -> None:
    plan = plan_of(tmp_path / "b", base)
    happens(plan)
    run = run_of(tmp_path / "a", base, train={"steps": 2})
    stopped_after(run, 1)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / FILE).touch()
    found = find(tmp_path)
    assert [(each.path, each.kind, each.state) for each in found] == [
        (plan.out, "experiment", "passed"),
        (plan.out / "attempts" / "01", "run", "ended: a look passed"),
        (run.out, "run", "stopped"),
    ]
    assert found[2].step == 1
    assert found[2].loss is not None
    assert found[0].settings == plan.digest()


@pytest.mark.parametrize(
    ("kind", "values", "state"),
    [
        ("finished", {"stopped": 0}, "finished"),
        ("failed", {"error": "DivergedError"}, "failed: DivergedError"),
        ("ended", {"stopped": 0, "passed": False}, "no attempt passed"),
        ("ended", {"stopped": 2, "passed": False}, "stopped"),
        ("started", {}, "unfinished"),
    ],
)
def test_the_last_that_was_heard_is_the_state(
    kind: str, values: dict[str, object], state: str, tmp_path: Path
) -> None:
    log = EventLog(tmp_path / FILE, "x")
    log.write("started")
    log.write(kind, **values)
    log.write("step", step=1, loss=1.0)
    assert summary_of(tmp_path).state == state


def test_two_runs_are_compared_by_settings_and_results(base: Path, tmp_path: Path) -> None:
    one = run_of(tmp_path / "one", base, train={"steps": 1})
    two = run_of(tmp_path / "two", base, train={"steps": 1}, optim={"lr": 1e-4})
    for run in (one, two):
        list(train(run))
    lines = compare(one.out, two.out)
    assert "optim.lr: 0.003 -> 0.0001" in lines
    assert not any(line.startswith(("state", "step", "loss", "code")) for line in lines)
    assert settings_of(one.out) == one
    plan = plan_of(tmp_path / "plan", base)
    happens(plan)
    assert compare(plan.out, plan.out) == []
    with pytest.raises(ConfigError):
        compare(plan.out, one.out)
    with pytest.raises(FormatError):
        settings_of(tmp_path)


def test_a_weight_file_is_traced_back_to_the_base(base: Path, tmp_path: Path) -> None:
    plan = plan_of(tmp_path, base)
    happens(plan)
    weights = plan.out / "export" / "model.safetensors"
    links = trace(weights)
    assert [(link.name, link.state) for link in links] == [
        ("01-step-2-share-0.5", "as recorded"),
        ("01", "as recorded"),
        ("data", "as recorded"),
        ("start", "not here"),
    ]
    assert links[-1].path == str(base)
    assert trace(plan.out / "export") == links
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    (plan.out / "data").rename(tmp_path / "gone")
    assert [link.state for link in trace(weights)] == [
        "changed", "as recorded", "gone", "not here"]  # fmt: skip


def test_the_export_of_a_plain_run_is_traced_too(base: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path, base, train={"steps": 1})
    list(train(run))
    links = trace(run.out / "export")
    assert [link.name for link in links] == ["export", "data", "settings", "start"]
    assert links[0].state == "as recorded"
    assert trace(run.out / "export" / "model.safetensors") == links
    assert links[2].digest == run.digest()
    assert links[3].path == str(base)
    (run.out / "export" / "config.json").write_text("{}")
    assert trace(run.out / "export")[0].state == "changed"
    for unknown in (base, run.out / "run.yaml"):
        with pytest.raises(FormatError, match="No record knows"):
            trace(unknown)
