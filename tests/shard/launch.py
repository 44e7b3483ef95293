"""Start processes as a user would, with torchrun, and never leave one behind."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 400.0


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def torchrun_argv(size: int, *command: str) -> list[str]:
    return [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(size),
        "--master-port", str(free_port()), *command,
    ]  # fmt: skip


def started(argv: list[str]) -> "subprocess.Popen[str]":
    """A process in a session of its own, which ``ended`` can end with all that it started."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    quick = {"OMP_NUM_THREADS": "1", "TORCH_COMPILE_DISABLE": "1"}
    environment = {**os.environ, "PYTHONPATH": path, **quick}
    return subprocess.Popen(
        argv, env=environment, cwd=ROOT, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def ended(
    process: "subprocess.Popen[str]", timeout: float = TIMEOUT_S
) -> "subprocess.CompletedProcess[str]":
    """What a process left; it and its children are gone, whatever happened."""
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        for group in _groups(process.pid):
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.wait()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def torchrun(
    size: int, *command: str, timeout: float = TIMEOUT_S
) -> "subprocess.CompletedProcess[str]":
    return ended(started(torchrun_argv(size, *command)), timeout)


def _groups(session: int) -> set[int]:
    """The process groups of a session: torchrun gives every rank one of its own."""
    found = {session}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            found.add(int(fields[2]))
    return found
