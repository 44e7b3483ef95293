import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from fourge.guard.job import Job, descendants, signal_one
from tests.guard.guarded import appears, end, gone, heed_hangups, python, run, until
from tests.guard.guarded import start as start_guard
from tests.guard.trees import GIB, Machine

ABOUT_ME = """
import json, os, resource, signal, sys
print(json.dumps({
    "nice": os.getpriority(os.PRIO_PROCESS, 0),
    "scheduler": os.sched_getscheduler(0),
    "oom": int(open("/proc/self/oom_score_adj").read()),
    "locked": [line.split()[1] for line in open("/proc/self/status") if "VmLck" in line],
    "signals": [line.split()[1] for line in open("/proc/self/status")
                if line.startswith(("SigBlk", "SigIgn"))],
    "open": sorted(map(int, os.listdir("/proc/self/fd"))),
    "group": os.getpgrp(),
}))
"""


def plainly(command: list[str]) -> str:
    """What a command says that is started without a guard, as the guard is."""
    return subprocess.run(
        command, capture_output=True, text=True, check=True, preexec_fn=heed_hangups
    ).stdout


def test_the_command_inherits_nothing_of_the_guards_armour(machine: Machine) -> None:
    status, out, _ = run(machine, python(ABOUT_ME))
    assert status == 0
    guarded, plain = json.loads(out), json.loads(plainly(python(ABOUT_ME)))
    opened, usual = guarded.pop("open"), plain.pop("open")
    assert guarded == plain
    assert isinstance(usual, list)
    assert len(opened) == len(usual) + 1  # the line to the guard


def test_the_command_has_the_signals_it_would_have_anywhere(machine: Machine) -> None:
    """Python ignores SIGPIPE, and would pass that on."""
    command = ["grep", "^Sig[BI]", "/proc/self/status"]
    assert run(machine, command)[:2] == (0, plainly(command))


def test_who_has_ended_is_no_descendant() -> None:
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert Path(f"/proc/{process.pid}").exists()
        assert process.pid not in descendants(os.getpid())


def test_descendants_are_found_with_their_parents() -> None:
    script = "sleep 60 & wait"
    with subprocess.Popen(["sh", "-c", script], start_new_session=True) as process:
        until(lambda: len(descendants(process.pid)) == 1)
        assert process.pid not in descendants(process.pid)
        assert set(descendants(process.pid).values()) == {process.pid}
        assert descendants(os.getpid())[process.pid] == os.getpid()
        os.killpg(process.pid, signal.SIGKILL)
    assert descendants(process.pid) == {}


def test_a_process_that_is_not_the_one_listed_is_not_signalled() -> None:
    parent = python("import subprocess; subprocess.run(['sleep', '60'])")
    with subprocess.Popen(parent, start_new_session=True) as process:
        until(lambda: len(descendants(process.pid)) == 1)
        (child,) = descendants(process.pid)
        signal_one(child, 1, signal.SIGKILL)
        time.sleep(0.05)
        assert not gone(child)
        signal_one(child, process.pid, signal.SIGKILL)
        until(lambda: gone(child))
        process.wait()


def test_a_command_that_forks_for_its_life_is_ended_too(machine: Machine) -> None:
    """Each process starts the next, in a session of its own, and dies."""
    script = (
        "import os, sys, time\n"
        "open(sys.argv[1], 'w').write('yes')\n"
        "if os.fork(): time.sleep(60)\n"
        "while True:\n"
        "    time.sleep(0.002)\n"
        "    if os.fork(): os._exit(0)\n"
        "    os.setsid()\n"
        "    open(sys.argv[1] + '.last', 'w').write(str(os.getpid()))\n"
    )
    process = start_guard(machine, [*python(script), str(machine.root / "ready")])
    appears(Path(f"{machine.root}/ready.last"))
    machine.set(7 * GIB)
    assert end(process)[0] == 124
    written = (machine.root / "ready.last").stat().st_mtime_ns
    time.sleep(0.2)
    assert (machine.root / "ready.last").stat().st_mtime_ns == written


def test_a_command_that_cannot_be_executed_says_so(machine: Machine) -> None:
    broken = machine.root / "broken"
    broken.write_bytes(b"\x7fELF nonsense")
    broken.chmod(0o755)
    status, _, err = run(machine, [str(broken)])
    assert status == 127
    assert f"{broken} cannot be started: " in err


def test_signalling_a_job_that_has_left_is_no_error() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    job = Job(process.pid, os.pidfd_open(process.pid), -1, None)  # type: ignore[arg-type]
    process.wait()
    job.signal(signal.SIGTERM)
    os.close(job.pidfd)
