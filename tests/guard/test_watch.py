"""Real guards around real commands; only the counters are files that a test writes."""

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.guard.guarded import appears, end, gone, kinds, log, python, run, start, until
from tests.guard.trees import GIB, Machine

SAVES = """
import pathlib, signal, sys, time
def leave(number, frame):
    pathlib.Path(sys.argv[1], "saved").write_text("yes")
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
pathlib.Path(sys.argv[1], "ready").write_text("yes")
time.sleep(60)
"""
DEAF = "trap '' TERM; echo $$ > ready; while true; do sleep 0.1; done"


def shell(script: str, folder: Path) -> list[str]:
    return ["sh", "-c", f"cd {folder}; {script}"]


@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137)])
def test_a_command_that_ends_gives_its_own_status(
    machine: Machine, script: str, status: int
) -> None:
    found, out, err = run(machine, ["sh", "-c", f"echo out; {script}"])
    assert (found, out) == (status, "out\n")
    assert err == "fourge guard: 40.00 GiB left; the line is at 8.00 GiB left\n"
    assert kinds(machine) == ["start", "end"]


def test_a_command_that_is_asked_saves_and_leaves_and_the_log_says_why(machine: Machine) -> None:
    process = start(machine, [*python(SAVES), str(machine.root)])
    appears(machine.root / "ready")
    machine.set(int(8.3 * GIB))
    status, _, err = end(process)
    assert status == 124
    assert (machine.root / "saved").exists()
    assert "asked to save and leave" in err
    assert kinds(machine) == ["start", "warned", "asked", "end", "not_recovered"]
    asked = next(line for line in log(machine) if line["kind"] == "asked")
    assert asked["headroom"] == pytest.approx(0.3 * GIB, rel=0.01)
    assert "room for 0.30 GiB more" in asked["reason"]
    minute = log(machine)[log(machine).index(asked) + 1]
    assert minute["columns"] == ["s", "left_mib", "headroom_mib"]
    assert minute["looks"][0][1:] == [40960, 32768]
    assert minute["looks"][-1][2] == 307


def test_a_trainer_inside_a_script_is_asked_when_the_script_has_gone(machine: Machine) -> None:
    trainer = machine.root / "trainer.py"
    trainer.write_text(SAVES)
    script = f"{sys.executable} {trainer} {machine.root}; echo not reached"
    process = start(machine, ["sh", "-c", script])
    appears(machine.root / "ready")
    machine.set(int(8.3 * GIB))
    status, out, _ = end(process)
    assert (status, out) == (124, "")
    assert (machine.root / "saved").exists()


def test_what_is_left_of_an_asked_job_has_the_rest_of_the_grace(machine: Machine) -> None:
    (machine.root / "deaf.sh").write_text(DEAF)
    script = "sh deaf.sh & wait"
    process = start(machine, shell(script, machine.root), grace_s="0.5")
    pid = int(appears(machine.root / "ready"))
    machine.set(int(8.3 * GIB))
    assert end(process)[0] == 124
    assert kinds(machine)[1:4] == ["warned", "asked", "killed"]
    assert gone(pid)


def test_who_ignores_being_asked_is_killed_after_the_grace(machine: Machine) -> None:
    process = start(machine, shell(DEAF, machine.root), grace_s="0.4")
    pid = int(appears(machine.root / "ready"))
    machine.set(int(8.3 * GIB))
    status, _, err = end(process)
    assert status == 124
    assert "did not leave within 0.4 s; the job is killed" in err
    assert gone(pid)


def test_beyond_the_line_everybody_in_the_job_is_killed_and_nobody_else(machine: Machine) -> None:
    """An orphan in a session of its own, a child, a grandchild; and a stranger in our group."""
    stranger = start(machine, ["sleep", "60"], log=str(machine.root / "other"))
    script = (
        "(setsid sh -c 'echo $$ > orphan; sleep 60' &); (sh -c 'echo $$ > grandchild; sleep 60')& "
        "sh -c 'echo $$ > child; sleep 60' & echo $$ > main; wait"
    )
    other = Machine(machine.root / "second")
    process = start(other, shell(script, other.root))
    pids = [int(appears(other.root / name)) for name in ("orphan", "grandchild", "child", "main")]
    other.set(7 * GIB)
    status, _, err = end(process)
    assert status == 124
    assert "the line is crossed by 1.00 GiB; the job is killed" in err
    assert all(map(gone, pids))
    assert stranger.poll() is None
    stranger.terminate()
    assert end(stranger)[0] == 143


def test_a_guard_that_is_killed_makes_the_command_save_and_leave(machine: Machine) -> None:
    process = start(machine, [*python(SAVES), str(machine.root)])
    appears(machine.root / "ready")
    process.kill()
    appears(machine.root / "saved")
    end(process)


def test_a_signal_is_passed_on_and_the_status_is_the_commands(machine: Machine) -> None:
    process = start(machine, [*python(SAVES), str(machine.root)])
    appears(machine.root / "ready")
    process.send_signal(signal.SIGINT)  # the terminal would tell the command itself
    process.send_signal(signal.SIGTERM)
    assert end(process)[0] == 0
    assert (machine.root / "saved").exists()
    assert kinds(machine) == ["start", "passed_on", "end"]


def test_a_command_that_was_told_to_leave_is_not_told_twice(machine: Machine) -> None:
    """A second SIGTERM makes a trainer leave without saving."""
    script = "trap 'echo term >> heard' TERM; echo $$ > ready; while true; do sleep 0.05; done"
    process = start(machine, shell(script, machine.root), grace_s="1")
    appears(machine.root / "ready")
    process.terminate()
    appears(machine.root / "heard")
    machine.set(int(8.3 * GIB))
    assert end(process)[0] == 124
    assert (machine.root / "heard").read_text() == "term\n"


def test_a_hangup_that_the_command_ignores_is_not_taken_for_being_told(machine: Machine) -> None:
    script = "trap '' HUP; trap 'echo yes > saved; exit' TERM; echo $$ > ready; "
    process = start(machine, shell(script + "while true; do sleep 0.05; done", machine.root))
    appears(machine.root / "ready")
    process.send_signal(signal.SIGHUP)
    until(lambda: "passed_on" in kinds(machine))
    machine.set(int(8.3 * GIB))
    assert end(process)[0] == 124
    assert (machine.root / "saved").exists()


def test_a_source_that_cannot_be_read_stops_the_command(machine: Machine) -> None:
    process = start(machine, [*python(SAVES), str(machine.root)])
    appears(machine.root / "ready")
    machine.put("the kernel says nothing")
    status, _, err = end(process)
    assert status == 124
    assert (machine.root / "saved").exists()
    assert f"memory can no longer be read: {machine.meminfo} has no MemTotal" in err


def test_nothing_is_started_while_there_is_no_room(machine: Machine) -> None:
    machine.set(8 * GIB)
    status, out, err = run(machine, ["echo", "started"])
    assert (status, out) == (124, "")
    assert "too little memory is left to start with; waiting for at most 0.3 s" in err
    assert "only 8.00 GiB are left; the command was not started" in err
    assert kinds(machine) == ["start", "refused"]


def test_a_command_waits_for_room_and_then_starts(machine: Machine) -> None:
    machine.set(8 * GIB)
    process = start(machine, ["echo", "started"], recover_s="30")
    until(lambda: (machine.root / "log").exists() and kinds(machine) == ["start"])
    machine.set(20 * GIB)
    status, out, err = end(process)
    assert (status, out) == (0, "started\n")
    assert err.endswith("fourge guard: 20.00 GiB left; the line is at 8.00 GiB left\n")


def test_the_guard_leaves_when_memory_is_back_and_not_before(machine: Machine) -> None:
    process = start(machine, ["sleep", "60"], recover_s="30")
    until(lambda: kinds(machine) == ["start"] if (machine.root / "log").exists() else False)
    machine.set(7 * GIB)
    until(lambda: "end" in kinds(machine))
    machine.set(30 * GIB)
    assert process.poll() is None
    machine.set(39 * GIB)
    status, _, err = end(process)
    assert status == 124
    assert "memory is back: 39.00 GiB left" in err


def test_what_a_command_leaves_in_the_background_is_left_alone(machine: Machine) -> None:
    script = "(sleep 5; echo done > later) > /dev/null 2>&1 & echo $! > pid; exit 4"
    assert run(machine, shell(script, machine.root))[0] == 4
    pid = int(appears(machine.root / "pid"))
    assert not gone(pid)
    os.kill(pid, signal.SIGKILL)


def test_only_time_beyond_the_line_counts_if_that_was_chosen(machine: Machine) -> None:
    process = start(machine, shell(DEAF, machine.root), over_s="0.5")
    appears(machine.root / "ready")
    machine.set(7 * GIB)
    assert end(process)[0] == 124
    times = {line["kind"]: line.get("s", 0.0) for line in log(machine)}
    assert kinds(machine)[1:4] == ["warned", "asked", "killed"]
    assert times["killed"] - times["warned"] >= 0.49


def test_a_full_disk_does_not_stop_the_guard(machine: Machine) -> None:
    process = start(machine, shell(DEAF, machine.root), log="/dev/full")
    pid = int(appears(machine.root / "ready"))
    machine.set(7 * GIB)
    status, _, err = end(process)
    assert status == 124
    assert err.count("the log cannot be written: No space left on device") == 1
    assert gone(pid)
