"""What ``test_experiment`` does not show of a single attempt: looks, and how they are cut short."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fourge.checkpoint import store
from fourge.core.content import digest_of_path
from fourge.core.errors import FormatError
from fourge.core.events import EventLog, read_events
from fourge.evaluate.score import Names
from fourge.harness import attempt as module
from fourge.harness.attempt import train_attempt
from fourge.harness.exam import Exam
from fourge.harness.record import Artifact, Rest
from fourge.harness.training import Stop, prepared
from fourge.harness.work import Looked, Told, Work, telling
from tests.harness.experiment_samples import choose_few, few_questions, plan_of, said_by, scripted
from tests.harness.samples import run_of

Folder = Callable[..., Path]


@pytest.fixture
def work(tiny_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Work:
    few_questions(monkeypatch, tmp_path / "cache")
    base = tiny_folder("qwen3", tied=True)
    stop = Stop()
    plan = plan_of(tmp_path, base)
    work = Work(plan, EventLog(plan.out / "events.jsonl", "x"), stop, telling(stop, None))
    ready, _ = prepared(run_of(tmp_path / "run", base))
    work.made(Artifact("start", str(base), "", "start", ready.base_digest))
    return work


def attempted(work: Work, folder: Path) -> tuple[list[Told], Rest | int]:
    """An attempt on two short files, and how it ended."""
    questions = choose_few(["en"], name="Ada", limit=1)
    exam = Exam(questions, said_by("untaught", questions), Names("Ada"), 0.05)
    run = run_of(folder / "run", Path(work.plan.model.path), train={"steps": 4})
    pulled, seen = train_attempt(work, exam, "01", run), []
    while True:
        try:
            seen.append(next(pulled))
        except StopIteration as end:
            return seen, end.value


def test_an_attempt_is_trained_once_and_its_checkpoint_is_an_artifact(
    work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, ["untaught"], {})
    events, outcome = attempted(work, tmp_path)
    assert outcome == Rest(4, "", whole=True)
    assert [event.step for event in events if isinstance(event, Looked)] == [2, 4]
    latest = store.latest(tmp_path / "run" / "out" / "checkpoints")
    assert latest is not None
    artifact = work.record().artifacts["01"]
    assert (artifact.parent, artifact.weights) == ("start", "checkpoints/step-000004")
    assert artifact.digest == digest_of_path(latest)
    assert attempted(work, tmp_path) == ([], outcome)
    assert not work.stop.running


def test_logits_that_are_not_finite_are_a_collapse(
    work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any) -> Any:
        raise FormatError("The logits are not finite.")

    monkeypatch.setattr(module, "ask_loaded", refuse)
    events, outcome = attempted(work, tmp_path)
    assert outcome == Rest(2, "The logits are not finite.", whole=False)
    assert [event.step for event in events if isinstance(event, Looked)] == [2]


def test_a_signal_in_the_middle_of_a_look_ends_it_and_training_saves(
    work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def signalled(model: Any, tokenizer: Any, questions: Any, kept: Any, progress: Any) -> Any:
        progress(1, 2)
        work.stop.signal = 15
        progress(2, 2)
        raise AssertionError("the look went on")

    monkeypatch.setattr(module, "ask_loaded", signalled)
    events, outcome = attempted(work, tmp_path)
    assert outcome == 15
    assert not any(isinstance(event, Looked) for event in events)
    assert (tmp_path / "run" / "out" / "checkpoints" / "step-000002").is_dir()
    assert "01" not in work.record().rests
    work.stop.signal = 0
    scripted(monkeypatch, ["good"], {})
    events, outcome = attempted(work, tmp_path)
    assert outcome == Rest(2, "", whole=False)
    looks = [event.step for event in events if isinstance(event, Looked)]
    assert looks == [2]  # the one that was cut short: nothing more is trained
    kinds = [event["kind"] for event in read_events(work.log.path)]
    assert kinds[-3:] == ["look", "artifact", "trained"]


def test_the_model_is_back_in_training_form_after_a_look(
    work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []

    def look(model: Any, tokenizer: Any, questions: Any, *rest: Any) -> Any:
        modes.append((model, model.training))
        return said_by("untaught", questions)

    monkeypatch.setattr(module, "ask_loaded", look)
    plan = replace(work, plan=plan_of(tmp_path, Path(work.plan.model.path)))
    attempted(plan, tmp_path)
    assert [training for _, training in modes] == [False, False]
    assert all(model.training for model, _ in modes)
