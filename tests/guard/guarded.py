"""Start a real guard around a real command, on a machine made of files."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fourge.guard.options import guard_argv
from tests.guard.trees import Machine

PATIENCE_S = 30.0


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def start(machine: Machine, command: list[str], **options: str) -> "subprocess.Popen[str]":
    """A guard with short waits, that writes a log beside the machine."""
    chosen = {"floor": "8GiB", "recover_s": "0.3", "grace_s": "5", "root": str(machine.root),
              "log": str(log_file(machine)), **options}  # fmt: skip
    return subprocess.Popen(
        guard_argv(command, chosen), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=heed_hangups,
    )  # fmt: skip


def heed_hangups() -> None:
    """Tests that were started by nohup ignore them, and a guard would do as it was told."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def end(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """(status, stdout, stderr)"""
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


def run(machine: Machine, command: list[str], **options: str) -> tuple[int, str, str]:
    return end(start(machine, command, **options))


def log_file(machine: Machine) -> Path:
    return machine.root / "log"


def log(machine: Machine) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log_file(machine).read_text("utf-8").splitlines()]


def kinds(machine: Machine) -> list[str]:
    return [line["kind"] for line in log(machine) if line["kind"] not in ("sample", "minute")]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def appears(path: Path) -> str:
    """The text of a file, once it is there and not empty."""
    until(lambda: path.exists() and path.read_text() != "")
    return path.read_text()


def gone(pid: int) -> bool:
    """Whether a process has ended; a zombie has."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except OSError:
        return True
    return text.rpartition(")")[2].split()[0] in "ZX"
