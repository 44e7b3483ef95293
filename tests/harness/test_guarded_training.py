"""A run that has a guard: it hears its warning, notices its death, and is asked to leave."""

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fourge.guard.client import VARIABLE
from fourge.harness.saving import Saved
from fourge.harness.training import Finished, Happened, train
from fourge.nvfp4 import compiled
from fourge.train.loop import StepResult
from tests.harness.samples import run_of, same_end

Folder = Callable[..., Path]


@pytest.fixture(autouse=True)
def _plain_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_can_compile", lambda device: False)


@pytest.fixture
def guard(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The guard's end of the line."""
    ours, theirs = socket.socketpair()
    descriptor = theirs.fileno()
    monkeypatch.setenv(VARIABLE, f"{descriptor}:{os.fstat(descriptor).st_ino}")
    ours.setblocking(False)
    yield ours
    ours.close()
    theirs.close()


@pytest.fixture
def base(tiny_folder: Folder) -> Path:
    return tiny_folder("qwen3", tied=True)


def kinds(events: list[Happened]) -> list[str]:
    return [type(event).__name__ for event in events]


@pytest.mark.parametrize(
    "train_settings", [{}, {"accumulate": 3, "batch": 1, "release": False}], ids=["release", "sum"]
)
def test_a_warning_saves_once_goes_on_and_changes_no_bit(
    train_settings: dict[str, object], base: Path, tmp_path: Path, guard: socket.socket
) -> None:
    calm = run_of(tmp_path / "calm", base, train=train_settings)
    list(train(calm))
    warned = run_of(tmp_path / "warned", base, train=train_settings)
    events = []
    for event in train(warned):
        events.append(event)
        if isinstance(event, StepResult) and event.step == 2:
            guard.send(b"w")
    saved = [event.step for event in events if isinstance(event, Saved)]
    assert saved == [2, 6]
    assert same_end(calm, warned)


def test_every_micro_step_is_a_sign_of_life(
    base: Path, tmp_path: Path, guard: socket.socket
) -> None:
    settings = {"accumulate": 3, "batch": 1, "release": False, "steps": 2}
    list(train(run_of(tmp_path, base, train=settings)))
    assert guard.recv(1 << 16) == b"." * 6


def test_a_run_whose_guard_is_gone_saves_and_stops(
    base: Path, tmp_path: Path, guard: socket.socket
) -> None:
    events = []
    for event in train(run_of(tmp_path, base)):
        events.append(event)
        if isinstance(event, StepResult) and event.step == 3:
            guard.close()
    assert kinds(events)[-2:] == ["Saved", "Finished"]
    assert events[-1] == Finished(3, 15, None)
