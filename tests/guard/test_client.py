import os
import signal
import socket
import time
from collections.abc import Iterator

import pytest

from fourge.guard.client import VARIABLE, Beat, guarded
from tests.guard.guarded import appears, end, kinds, python, run, start
from tests.guard.trees import GIB, Machine

SILENT = """
import pathlib, sys, time
from fourge.guard.client import Beat
beat = Beat()
for _ in range(5):
    beat.beat(); time.sleep(0.1)
pathlib.Path(sys.argv[1], "ready").write_text("yes")
time.sleep(60)
"""
BEATS = """
import os, pathlib, sys, time
from fourge.guard.client import Beat
beat = Beat()
while not pathlib.Path(sys.argv[1], "finish").exists():
    beat.beat(); time.sleep(0.02)
    pathlib.Path(sys.argv[1], "ready").write_text(str(os.getpid()))
"""
LISTENS = """
import pathlib, sys, time
from fourge.guard.client import Beat
beat = Beat()
pathlib.Path(sys.argv[1], "ready").write_text("yes")
while not beat.warned():
    time.sleep(0.01)
sys.exit(7)
"""


@pytest.fixture
def guard_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        monkeypatch.setenv(VARIABLE, f"{theirs.fileno()}:{os.fstat(theirs.fileno()).st_ino}")
        yield ours


def test_without_a_guard_all_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    beat = Beat()
    beat.beat()
    assert (beat.warned(), beat.lost, guarded()) == (False,) * 3


@pytest.mark.parametrize("value", ["", "x", "5", "-1:5", "99999:1", "0:1:2", "0:1"])
def test_a_variable_that_names_no_line_of_ours_is_no_guard(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv(VARIABLE, value)
    assert not guarded()
    assert not Beat().lost


def test_beats_and_warnings_go_over_one_line(guard_end: socket.socket) -> None:
    beat = Beat()
    assert guarded()
    beat.beat()
    assert guard_end.recv(10) == b"."
    assert not beat.warned()
    guard_end.send(b"w")
    assert beat.warned()
    assert not beat.warned()
    assert not beat.lost


def test_a_full_line_neither_blocks_nor_raises(guard_end: socket.socket) -> None:
    beat = Beat()
    for _ in range(200_000):
        beat.beat()
    assert not beat.lost


def test_a_dead_guard_is_noticed(guard_end: socket.socket) -> None:
    beat = Beat()
    guard_end.close()
    beat.beat()
    assert not beat.warned()
    assert beat.lost


def test_a_trainer_that_falls_silent_is_asked_and_one_that_never_spoke_is_not(
    machine: Machine,
) -> None:
    status, _, err = run(machine, [*python(SILENT), str(machine.root)], silent_s="1.5")
    assert status == 124
    assert "it has been silent for 2 s" in err
    assert (machine.root / "ready").exists()
    assert run(machine, ["sleep", "1"], silent_s="0.3")[0] == 0


def test_a_guard_that_was_stopped_with_its_trainer_does_not_call_that_silence(
    machine: Machine,
) -> None:
    process = start(machine, [*python(BEATS), str(machine.root)], silent_s="1.5")
    trainer = int(appears(machine.root / "ready"))
    for pid in (trainer, process.pid):  # as Ctrl-Z does; the guard has heard the last beat
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.4)
    time.sleep(2.0)
    for pid in (process.pid, trainer):
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.3)
    (machine.root / "finish").touch()
    assert end(process)[0] == 0


def test_a_warning_reaches_the_trainer_and_is_no_stop(machine: Machine) -> None:
    process = start(machine, [*python(LISTENS), str(machine.root)])
    appears(machine.root / "ready")
    machine.set(9 * GIB)
    status, _, err = end(process)
    assert status == 7
    assert "a trainer that listens is told to drop caches and to save" in err
    assert kinds(machine) == ["start", "warned", "end"]
