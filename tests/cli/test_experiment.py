import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from fourge.core.errors import ConfigError
from fourge.core.events import FILE, read_events
from fourge.nvfp4 import compiled
from tests.cli.entry import leaves
from tests.harness.experiment_samples import few_questions, plan_of, scripted

Folder = Callable[..., Path]


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(compiled, "_can_compile", lambda device: False)
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def file(tiny_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    few_questions(monkeypatch, tmp_path / "cache")
    plan = plan_of(tmp_path, tiny_folder("qwen3", tied=True))
    path = tmp_path / "e.yaml"
    path.write_text(plan.to_yaml())
    return path


def test_one_that_passes_leaves_with_zero_and_tells_each_stage(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted(monkeypatch, ["broken", "good"], {"02-share-0.5": "good"})
    assert leaves(monkeypatch, "experiment", str(file)) == 0
    told, out = capsys.readouterr(), file.parent / "out"
    assert told.out.split() == ["every", "gate", "passes:", str(out / "export")]
    for text in (
        f"data: {out / 'data'}",
        "attempt 01 of 2: as given",
        "look at step 2: collapsed: degeneration +100.0% against the base",
        f"01 put aside: {out / 'trash' / '01-1'}",
        "attempt 02 of 2: optim.lr=1e-4",
        "look at step 2: nothing speaks against it",
        "02-step-2-share-0.5, gates: nothing speaks against it",
    ):
        assert text in told.err.splitlines(), text
    begun = next(read_events(out / FILE))
    assert begun["command"] == ["fourge", "experiment", str(file)]


def test_none_that_passes_leaves_with_one_and_the_log_is_in_the_language_asked_for(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted(monkeypatch, ["broken"], {})
    args = ("experiment", str(file), "--lang", "zh-TW", "--set", "attempts=[[]]")
    assert leaves(monkeypatch, *args) == 1
    told, out = capsys.readouterr(), file.parent / "out"
    assert told.out.split()[:3] == ["no", "attempt", "passed;"]
    assert "沒有任何嘗試通過" in (out / "devlog.md").read_text(encoding="utf-8")
    assert leaves(monkeypatch, *args, "--json") == 1
    told = capsys.readouterr()
    assert json.loads(told.out) == {
        "passed": False, "export": None, "stopped": 0, "record": str(out)}  # fmt: skip
    assert told.err == ""


def test_a_signal_in_training_is_kept_and_the_same_command_goes_on(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted(monkeypatch, ["good"], {"01-share-0.5": "good"})
    from fourge.cli import train_screen

    step = train_screen.TrainScreen._step

    def interrupted(self: Any, event: Any) -> None:
        step(self, event)
        signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as once:
        once.setattr(train_screen.TrainScreen, "_step", interrupted)
        assert leaves(once, "experiment", str(file)) == 143
    assert "stopped; the same command goes on" in capsys.readouterr().out
    assert leaves(monkeypatch, "experiment", str(file)) == 0
    assert "going on at step 2 of 4" in capsys.readouterr().err


def test_a_wrong_file_is_refused_with_every_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(yaml.safe_dump({"model": {"path": "m"}, "identiti": {}, "train": {}}))
    assert leaves(monkeypatch, "experiment", str(path)) == ConfigError.exit_code
    told = capsys.readouterr().err
    assert "identiti: no such setting; did you mean identity?" in told
    assert "out: is required" in told
