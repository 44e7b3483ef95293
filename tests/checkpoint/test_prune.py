import os
import subprocess
from pathlib import Path

import pytest

from fourge.checkpoint.store import load, prune, save
from tests.checkpoint.samples import names, same, sample


def gone_process() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def leftover(folder: Path, name: str) -> Path:
    path = folder / name
    path.mkdir(parents=True)
    (path / "half").write_text("x")
    return path


def test_pruning_keeps_the_last_ones(tmp_path: Path) -> None:
    for step in (1, 2, 3, 10):
        save(tmp_path, sample(step))
    (tmp_path / "notes").mkdir()
    removed = prune(tmp_path, 2)
    assert [path.name for path in removed] == ["step-000001", "step-000002"]
    assert names(tmp_path) == ["notes", "step-000003", "step-000010"]
    assert prune(tmp_path, 5) == []
    prune(tmp_path, 0)
    assert names(tmp_path) == ["notes", "step-000010"]
    assert prune(tmp_path / "nowhere", 1) == []


def test_pruning_removes_what_dead_processes_left_and_no_more(tmp_path: Path) -> None:
    dead = gone_process()
    for name in (
        f".step-000001.{dead}.partial",
        f"..step-000001.{dead}.partial.{dead}.partial",
        f".step-000002.{dead}.old.{dead}.partial",
    ):
        leftover(tmp_path, name)
    stay = [
        f".step-000001.{os.getpid()}.partial",  # at work
        ".step-000001.1.partial",  # of another user, at work
        f".other-000001.{dead}.partial",
        ".step-000001.partial",
        f".step-000001.{dead}.partial.txt",
    ]
    for name in stay:
        leftover(tmp_path, name)
    (tmp_path / f".step-000003.{dead}.partial").write_text("a file")
    prune(tmp_path, 1)
    assert names(tmp_path) == sorted([*stay, f".step-000003.{dead}.partial"])


def test_a_process_of_another_user_counts_as_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int, signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    path = leftover(tmp_path, ".step-000001.77.partial")
    prune(tmp_path, 1)
    assert path.exists()


def test_a_checkpoint_that_was_set_aside_comes_back(tmp_path: Path) -> None:
    dead = gone_process()
    save(tmp_path, sample(3)).rename(tmp_path / f".step-000003.{dead}.old")
    prune(tmp_path, 1)
    assert same(load(tmp_path / "step-000003"), sample(3))
    leftover(tmp_path, f".step-000003.{dead}.old")
    prune(tmp_path, 1)
    assert same(load(tmp_path / "step-000003"), sample(3))
    assert names(tmp_path) == ["step-000003"]


def test_a_leftover_of_a_process_with_our_own_id_is_no_obstacle(tmp_path: Path) -> None:
    for step in (1, 1):
        leftover(tmp_path, f".step-000001.{os.getpid()}.partial")
        path = save(tmp_path, sample(step))
        assert same(load(path), sample(step))
        assert names(tmp_path) == ["step-000001"]


def test_an_old_checkpoint_may_be_a_link_to_another_disk(tmp_path: Path) -> None:
    away = save(tmp_path / "away", sample(1))
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "step-000001").symlink_to(away)
    save(tmp_path / "here", sample(1, seed=2))
    assert load(tmp_path / "here" / "step-000001").meta["seed"] == 2
    assert load(away).meta["seed"] == 0
