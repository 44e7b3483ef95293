import hashlib
import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from fourge.checkpoint.source import open_any
from fourge.config.experiment import Experiment
from fourge.core.errors import ConfigError, DivergedError
from fourge.core.events import FILE, read_events
from fourge.harness import attempt as attempt_module
from fourge.harness import work as work_module
from fourge.harness.experiment import experiment
from fourge.harness.training import Finished, trained
from fourge.harness.work import AttemptBegun, Ended, Judged, Looked, PutAside, StageDone, Told
from fourge.model.between import between
from fourge.model.source import open_source
from fourge.train.loop import StepResult
from tests.harness.experiment_samples import few_questions, happens, names, plan_of, scripted

Folder = Callable[..., Path]


@pytest.fixture
def base(tiny_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    few_questions(monkeypatch, tmp_path / "cache")
    return tiny_folder("qwen3", tied=True)


def files_under(folder: Path) -> dict[str, str]:
    """Every file with a digest of its content, but for what is written anew from the events."""
    derived = {"devlog.md", "artifacts.md", "experiment.yaml", ".lock", FILE}
    return {
        hashlib.sha256(path.read_bytes()).hexdigest(): path.name
        for path in folder.rglob("*")
        if path.is_file() and path.name not in derived and "checkpoints" not in path.parts
    }


def kinds(folder: Path, *wanted: str) -> list[dict[str, Any]]:
    return [event for event in read_events(folder / "out" / FILE) if event["kind"] in wanted]


def last(events: list[Told]) -> Ended:
    ended = events[-1]
    assert isinstance(ended, Ended)
    return ended


def test_a_real_model_that_learns_nothing_fails_with_everything_kept(
    base: Path, tmp_path: Path
) -> None:
    plan = plan_of(tmp_path, base)
    events = happens(plan, command=["fourge", "experiment", "e.yaml"])
    assert not last(events).passed
    assert [event.stage for event in events if isinstance(event, StageDone)] == ["data", "base"]
    assert sorted(path.name for path in (plan.out / "trash").iterdir()) == [
        "01-1", "01-step-4-share-0.5-1", "01-step-4-share-1-1",
        "02-1", "02-step-4-share-0.5-1", "02-step-4-share-1-1",
    ]  # fmt: skip
    for folder in (plan.out / "trash").iterdir():
        note = (folder / "note.md").read_text()
        assert "Why: " in note
        assert "| identity | 0.0000 | 0.0000 | fail |" in note
    (begun,) = kinds(tmp_path, "begun")
    assert begun["command"] == ["fourge", "experiment", "e.yaml"]
    assert begun["config"] == plan.digest()
    assert len(begun["code"]) == 32


def test_the_whole_way_from_the_base_is_judged_as_the_trained_model_was(
    base: Path, tmp_path: Path
) -> None:
    events = happens(plan_of(tmp_path, base, attempts=[[]]))
    looked = [event for event in events if isinstance(event, Looked)][-1]
    whole = next(e for e in events if isinstance(e, Judged) and e.name == "01-step-4-share-1")
    assert looked.step == 4
    assert list(looked.numbers) == [gate.name for gate in whole.gates]
    for gate in whole.gates:  # a sum's order may differ
        base_share, share, decision = looked.numbers[gate.name]
        assert gate.base == pytest.approx(base_share, rel=1e-5), gate
        assert gate.tuned == pytest.approx(share, rel=1e-5), gate
        assert gate.decision == decision


def test_a_look_that_passes_stops_and_the_smallest_share_that_passes_is_exported(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, ["good"], {"01-share-0.5": "good", "01-share-1": "good"})
    plan = plan_of(tmp_path, base, scan=[0.25, 0.5])
    events = happens(plan)
    assert last(events) == Ended(plan.out / "export")
    assert max(e.step for e in events if isinstance(e, StepResult)) == 2
    judged = [(e.name, e.of, e.passed) for e in events if isinstance(e, Judged)]
    assert judged == [
        ("01-step-2-share-0.25", "look", False),
        ("01-step-2-share-0.5", "look", True),
        ("01-step-2-share-0.5", "gates", True),
    ]
    exported = open_source(plan.out / "export")
    middle = between(open_source(base), open_any(plan.out / "attempts" / "01").source, 0.5)
    norm = "model.norm.weight"
    assert exported.tensors[norm].dense().equal(middle.tensors[norm].dense())
    assert (plan.out / "trash" / "01-step-2-share-0.25-1" / "note.md").exists()


def test_what_only_a_look_passes_is_put_aside(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, ["untaught"], {"01-share-1": "good"})
    from fourge.harness import scan
    from tests.harness.experiment_samples import said_by

    def ask(path: str, questions: Any, progress: Any) -> Any:
        return said_by("good" if len(questions.probes) == 5 else "leaking", questions)

    monkeypatch.setattr(scan, "ask", ask)
    events = happens(plan_of(tmp_path, base, attempts=[[]], scan=[]))
    assert [(e.of, e.passed) for e in events if isinstance(e, Judged)] == [
        ("look", True),
        ("gates", False),
    ]
    assert not last(events).passed


def test_a_collapse_ends_the_attempt_and_the_next_begins_with_the_clean_weights(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, ["broken", "good"], {"02-share-0.5": "good"})
    plan = plan_of(tmp_path, base)
    events = happens(plan)
    assert names(events) == [
        "StageDone", "StageDone", "BaseScored",
        "AttemptBegun", "Looked", "Finished", "PutAside",
        "AttemptBegun", "Looked", "Finished", "Judged", "Judged", "Ended",
    ]  # fmt: skip
    assert last(events).passed
    aside = next(e for e in events if isinstance(e, PutAside))
    assert "degeneration +100.0% against the base" in aside.reason
    assert (aside.path / "checkpoints" / "step-000002").is_dir()
    starts = [next(e["base"] for e in read_events(folder / FILE) if e["kind"] == "started")
              for folder in (aside.path, plan.out / "attempts" / "02")]  # fmt: skip
    assert starts[0] == starts[1]
    second = [e for e in events if isinstance(e, AttemptBegun)][1]
    assert second.settings == ("optim.lr=1e-4",)


def test_a_leak_is_a_collapse_too_unless_that_is_switched_off(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, ["leaking"], {})
    events = happens(plan_of(tmp_path / "on", base, attempts=[[]]))
    assert [e.collapsed for e in events if isinstance(e, Looked)] == ["leak 100.0%"]
    off = plan_of(tmp_path / "off", base, attempts=[[]], gates={"collapse": None})
    looks = [e for e in happens(off) if isinstance(e, Looked)]
    assert [(e.step, e.collapsed) for e in looks] == [(2, ""), (4, "")]


def test_without_early_stop_training_goes_on_and_without_both_nobody_looks(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, ["good"], {"01-share-0.5": "good"})
    late = plan_of(tmp_path / "late", base, gates={"early_stop": False})
    events = happens(late)
    assert [e.step for e in events if isinstance(e, Looked)] == [2, 4]
    assert last(events).passed
    blind = plan_of(tmp_path / "blind", base, gates={"early_stop": False, "collapse": None})
    assert not any(isinstance(e, Looked) for e in happens(blind))


def test_a_loss_that_is_not_finite_ends_the_attempt_and_not_the_experiment(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, ["good"], {"02-share-0.5": "good"})

    def diverges(ready: Any, begin: Any, stop: Any) -> Any:
        if ready.checked.run.out.name == "01":
            raise DivergedError("The loss is nan at step 1.")
        yield from trained(ready, begin, stop)

    monkeypatch.setattr(attempt_module, "trained", diverges)
    events = happens(plan_of(tmp_path, base))
    assert last(events).passed
    assert [e.reason for e in events if isinstance(e, PutAside)] == ["The loss is nan at step 1."]


def test_where_nothing_passes_the_gates_training_goes_on_to_the_next_look_that_passes(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, ["good"], {"01-step-3-share-1": "good"})
    plan = plan_of(tmp_path, base, gates={"every_steps": 1}, scan=[], attempts=[[]])
    events = happens(plan)
    assert last(events).passed
    assert [e.step for e in events if isinstance(e, Looked)] == [1, 2, 3]
    assert [e.step for e in events if isinstance(e, StepResult)] == [1, 2, 3]
    judged = [e.name for e in events if isinstance(e, Judged) and e.of == "look"]
    assert judged == [f"01-step-{step}-share-1" for step in (1, 2, 3)]
    whole = plan_of(tmp_path / "whole", base, scan=[], attempts=[[]], gates={"early_stop": False})
    scripted(monkeypatch, ["good"], {})
    assert [e.step for e in happens(whole) if isinstance(e, StepResult)] == [1, 2, 3, 4]


def test_stopped_in_training_it_goes_on_and_ends_with_the_same_bits(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exports = []
    for name, stops in (("whole", [None]), ("stopped", [1, None])):
        plan = plan_of(tmp_path / name, base)
        for stop_at in stops:
            scripted(monkeypatch, ["good"] if stop_at is None else ["untaught"],
                     {"01-share-0.5": "good"})  # fmt: skip
            events = happens(plan, stop_at)
            assert last(events).stopped == (15 if stop_at else 0)
        assert last(events).passed
        exports.append(files_under(plan.out / "export"))
    assert exports[0] == exports[1]
    assert [e["passed"] for e in kinds(tmp_path / "stopped", "look")][-1]


def test_what_has_ended_says_so_and_does_nothing(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, ["good"], {"01-share-0.5": "good"})
    plan = plan_of(tmp_path, base)
    happens(plan)
    before = files_under(plan.out)
    assert names(happens(plan)) == ["Ended"]
    assert files_under(plan.out) == before


def test_killed_again_and_again_it_comes_to_its_end_and_nothing_is_lost_or_overwritten(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(tmp_path, base, train={"steps": 2, "save_every_steps": 1}, gates={
        "early_stop": False})  # fmt: skip
    scripted(monkeypatch, ["untaught"], {"01-share-1": "good"})
    seen: dict[str, str] = {}
    for few in (1, 2, 3, 6, 7, 8, 9, 8, 5, 6, 7, 8):
        told = list(islice(experiment(plan), few))
        now = files_under(plan.out)
        assert not {name for digest, name in seen.items() if digest not in now}
        seen |= now
    assert last(told) == Ended(plan.out / "export")
    assert [event["name"] for event in kinds(tmp_path, "trained")] == ["01"]
    looks = [event["step"] for event in kinds(tmp_path, "look")]
    assert looks == sorted(looks)


def test_a_move_that_was_recorded_and_not_made_is_made(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(tmp_path, base)
    scripted(monkeypatch, ["broken"], {})

    def killed(move: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(work_module, "carry_out", killed)
    with pytest.raises(KeyboardInterrupt):
        happens(plan)
    assert (plan.out / "attempts" / "01").is_dir()
    monkeypatch.undo()
    few_questions(monkeypatch, tmp_path / "cache")
    monkeypatch.setattr("fourge.nvfp4.compiled._can_compile", lambda device: False)
    scripted(monkeypatch, ["good"], {"02-share-0.5": "good"})
    assert last(happens(plan)).passed
    assert (plan.out / "trash" / "01-1" / "note.md").exists()
    assert not (plan.out / "attempts" / "01").exists()


def test_data_that_was_changed_and_another_base_are_refused(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, ["untaught"], {})
    plan = plan_of(tmp_path, base, train={"steps": 2})
    assert last(happens(plan, stop_at=1)).stopped
    identity = plan.out / "data" / "identity.jsonl"
    text = identity.read_text()
    identity.write_text(text + "\n")
    with pytest.raises(ConfigError, match="is not what this experiment made"):
        happens(plan)
    identity.write_text(text)
    lines = (plan.out / FILE).read_text().splitlines()
    start = next(json.loads(line) for line in lines if '"name": "start"' in line)
    lines.append(json.dumps({**start, "digest": "0" * 32}))
    (plan.out / FILE).write_text("\n".join(lines) + "\n")
    with pytest.raises(ConfigError, match="is not the model this experiment was begun with"):
        happens(plan)


def test_an_unknown_language_and_an_impossible_name_are_refused_before_anything(
    base: Path, tmp_path: Path
) -> None:
    plan = plan_of(tmp_path, base)
    for change in ({"languages": ["tlh"]}, {"name": "a{b"}):
        tree = plan.model_dump(mode="json")
        tree["identity"] |= change
        with pytest.raises(ConfigError):
            happens(Experiment.model_validate(tree))
    assert not plan.out.exists()


def test_a_run_that_finishes_by_itself_is_scanned(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, ["untaught"], {"01-share-1": "good"})
    events = happens(plan_of(tmp_path, base))
    finished = next(e for e in events if isinstance(e, Finished))
    assert finished.step == 4
    assert last(events).passed
