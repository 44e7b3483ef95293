"""What ``test_experiment`` does not show of a scan: asked once, exported once, broken files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fourge.core.errors import FormatError, OutputError
from fourge.core.events import EventLog, read_events
from fourge.evaluate import verdict
from fourge.evaluate.score import Names
from fourge.harness import scan as module
from fourge.harness.exam import Exam
from fourge.harness.scan import scan, write_export
from fourge.harness.training import Stop, train
from fourge.harness.work import Judged, Told, Work
from fourge.model.source import open_source
from tests.harness.experiment_samples import choose_few, few_questions, plan_of, said_by
from tests.harness.samples import run_of

Folder = Callable[..., Path]


@pytest.fixture
def work(tiny_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Work:
    few_questions(monkeypatch, tmp_path / "cache")
    plan = plan_of(tmp_path, tiny_folder("qwen3", tied=True), scan=[0.25, 0.5])
    log = EventLog(plan.out / "events.jsonl", "x")
    log.write("begun")
    return Work(plan, log, Stop(), lambda *told: None)


def scanned(work: Work, folder: Path) -> tuple[list[Told], Path | None]:
    run = run_of(folder / "run", Path(work.plan.model.path), train={"steps": 1})
    if not run.out.exists():
        list(train(run))
    questions = choose_few(["en"], name="Ada")
    exam = Exam(questions, said_by("untaught", questions), Names("Ada"), 0.05)
    pulled, seen = scan(work, exam, exam, "01", 1, run), []
    while True:
        try:
            seen.append(next(pulled))
        except StopIteration as end:
            return seen, end.value


def test_what_was_found_before_a_kill_is_not_asked_again(
    work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def ask(path: str, questions: Any, progress: Any) -> Any:
        asked.append(Path(path).name)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return said_by("good" if path.endswith("0.5") else "untaught", questions)

    monkeypatch.setattr(module, "ask", ask)
    with pytest.raises(KeyboardInterrupt):
        scanned(work, tmp_path)
    candidate = work.out / "candidates" / "01-step-1-share-0.5"
    written = (candidate / "model.safetensors").stat().st_mtime_ns
    _, export = scanned(work, tmp_path)
    gates, answers = (
        [event for event in read_events(work.log.path) if event["kind"] == kind]
        for kind in ("verdict", "answers")
    )
    assert [(event["name"], event["of"]) for event in gates] == [
        (event["name"], event["of"]) for event in answers
    ]
    assert [gate["name"] for gate in gates[-1]["gates"]] == list(gates[-1]["numbers"])
    assert all(gate["items"] for gate in gates[-1]["gates"])
    assert any("Ada" in row["tuned"] for row in answers[-1]["rows"])
    assert asked == [
        "01-step-1-share-0.25",
        "01-step-1-share-0.5",
        "01-step-1-share-0.5",
        "01-step-1-share-0.5",
    ]
    assert export == work.out / "export"
    assert (export / "model.safetensors").stat().st_mtime_ns == written
    assert work.record().artifacts["01-step-1-share-0.5"].passed


def test_an_export_that_cannot_be_judged_is_put_aside_and_the_next_is_tried(
    work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(path: str, questions: Any, progress: Any) -> Any:
        if path.endswith("0.25"):
            raise FormatError("The logits are not finite.")
        return said_by("good", questions)

    monkeypatch.setattr(module, "ask", ask)
    _, export = scanned(work, tmp_path)
    assert export is not None
    note = (work.out / "trash" / "01-step-1-share-0.25-1" / "note.md").read_text()
    assert "The logits are not finite." in note


def test_a_gate_that_its_items_cannot_decide_passes_a_look_and_ships_nothing(
    work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ask", lambda path, questions, progress: said_by("good", questions))
    monkeypatch.setattr(verdict, "enough_for", lambda share: 100)
    events, export = scanned(work, tmp_path)
    assert export is None
    assert [(e.of, e.passed) for e in events if isinstance(e, Judged)] == [
        ("look", True), ("gates", False)] * 3  # fmt: skip


def test_an_export_is_nvfp4_and_never_over_another(work: Work) -> None:
    run, path = work.plan.run(0), work.out / "base"
    write_export(open_source(run.model.path), run, path)
    assert open_source(path).layout == "compressed-tensors"
    with pytest.raises(OutputError):
        write_export(open_source(run.model.path), run, path)
