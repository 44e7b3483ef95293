import os
import signal
import socket
from pathlib import Path

import pytest

from fourge.core.errors import ConfigError
from fourge.core.events import EventLog
from fourge.guard.client import VARIABLE
from fourge.harness.record import Artifact
from fourge.harness.training import Stop
from fourge.harness.work import Work, note_of, telling
from fourge.train.loop import Stopped
from tests.harness.experiment_samples import plan_of


def work_in(folder: Path) -> Work:
    plan = plan_of(folder, folder)
    return Work(plan, EventLog(plan.out / "events.jsonl", "x"), Stop(), lambda *told: None)


def test_what_was_made_is_kept_as_long_as_it_is_what_it_was(tmp_path: Path) -> None:
    work = work_in(tmp_path)
    work.log.write("begun")
    path = work.out / "data"
    assert not work.kept("data", path)
    path.mkdir()
    (path / "a").write_text("1")
    assert not work.kept("data", path)
    from fourge.core.content import digest_of_path

    work.made(Artifact("data", str(path), "start", "data", digest_of_path(path)))
    assert work.kept("data", path)
    (path / "a").write_text("2")
    with pytest.raises(ConfigError, match="is not what this experiment made"):
        work.kept("data", path)


def test_put_aside_it_is_in_the_trash_and_in_the_record(tmp_path: Path) -> None:
    work = work_in(tmp_path)
    for turn in (1, 2):
        path = work.out / "attempts" / "01"
        path.mkdir(parents=True)
        aside = work.put_aside("01", path, "leak", "# why\n")
        assert aside.path == work.out / "trash" / f"01-{turn}"
        assert (aside.path / "note.md").read_text() == "# why\n"
    assert [move.target.name for move in work.record().moves] == ["01-1", "01-2"]


def test_progress_ends_a_look_that_is_asked_to_stop_and_nothing_else() -> None:
    stop, told = Stop(), []
    tell = telling(stop, lambda *each: told.append(each))
    stop.signal = signal.SIGINT
    tell("exporting", 0, 1)
    stop.running = True
    with pytest.raises(Stopped):
        tell("looking", 0, 1)
    assert told == [("exporting", 0, 1)]


def test_progress_is_a_sign_of_life_and_a_lost_guard_ends_what_runs_without_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = socket.socketpair()
    descriptor = theirs.fileno()
    monkeypatch.setenv(VARIABLE, f"{descriptor}:{os.fstat(descriptor).st_ino}")
    stop = Stop()
    tell = telling(stop, None)
    tell("asking", 0, 1)
    assert ours.recv(8) == b"."
    ours.close()
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        stop.running = True
        tell("looking", 0, 1)
        assert heard == []
        stop.running = False
        tell("asking", 1, 1)
        assert heard == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
        theirs.close()


def test_a_note_has_the_reason_and_the_numbers() -> None:
    note = note_of("01", "leak 30.0%", {"leak": [None, 0.7, "fail"]})
    assert note.startswith("# 01: put aside\n\nWhy: leak 30.0%.\n")
    assert "| leak | - | 0.7000 | fail |" in note
    assert note_of("01", "x", {}).endswith("Why: x.\n")
