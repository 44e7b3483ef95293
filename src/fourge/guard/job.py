"""The command that is watched: how it is started, asked, found and ended.

Everything that costs memory or time happens before the watch begins. The command is forked while
the guard is still an ordinary process, so it inherits neither its priority nor its exemption from
the OOM killer, and waits at a gate (a pipe) until the guard is ready; a guard that dies before
that closes the gate. It shares the guard's terminal and process group: Ctrl-C reaches it directly.

A guard that dies later, however it dies, makes the kernel send the command SIGTERM (``PDEATHSIG``).

Who belongs to the job is read from /proc by parentage. The guard is a *subreaper*: a process that
loses its parent, by a double fork or ``setsid``, becomes the guard's child and is found like any
other. Each is signalled through a pidfd that is opened first and checked after, so that a process
id which is used again can hit nobody else. What another daemon starts on the job's behalf (a
container, a systemd unit) is not the guard's child, and not found.

To kill, rounds go on until the kernel says that the guard has no child: a list may be empty because
what it had was gone before it could be read and had forked in the meantime. A round must be shorter
than the time from one fork to the next, so it passes over what was there before the job: on most
machines nearly everything.
"""

import contextlib
import ctypes
import os
import signal
import socket
import time
from collections.abc import Container
from dataclasses import dataclass
from typing import NoReturn

from fourge.guard.client import VARIABLE

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_KILL_FOR_S = 30.0
_STATE, _PARENT, _BORN = 0, 1, 19  # of what stands behind the name in /proc/PID/stat


@dataclass(slots=True)
class Job:
    """A command behind its gate; ``status`` is None while it lives, and as a shell's afterwards."""

    pid: int
    pidfd: int
    gate: int
    line: socket.socket  # the guard's end of the line to the trainer; see ``client``
    status: int | None = None

    def release(self) -> None:
        """Let the command begin."""
        os.write(self.gate, b"g")
        os.close(self.gate)

    def warn(self) -> None:
        """Tell a trainer that listens; anybody else has nothing to hear it with."""
        with contextlib.suppress(OSError):
            self.line.send(b"w")

    def heard(self) -> bool:
        """Whether the trainer gave a sign of life since the last call."""
        try:
            return bool(self.line.recv(1 << 16))
        except OSError:
            return False

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has just left
            signal.pidfd_send_signal(self.pidfd, number)

    def reap(self) -> bool:
        """Collect whoever has ended: the command, or an orphan that came to us. Is anybody left?"""
        try:
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == self.pid:
                    code = os.waitstatus_to_exitcode(found[1])
                    self.status = code if code >= 0 else 128 - code
        except ChildProcessError:
            return False
        return True

    def kill(self) -> int:
        """SIGKILL everybody in the job; how many would not die (waiting for a device, mostly)."""
        self.signal(signal.SIGKILL)
        end = time.monotonic() + _KILL_FOR_S
        older, told = _older_than(os.getpid()), dict[int, int]()
        while self.reap():
            alive = descendants(os.getpid(), older)
            if time.monotonic() > end:
                return len(alive)
            for pid, parent in alive.items():
                signal_one(pid, parent, signal.SIGKILL)
            if not alive:
                older = set()  # one of their numbers may be in use again
            if alive == told:
                time.sleep(0.001)  # nobody is new: all that is left is to die
            told = alive
        return 0


def start(command: tuple[str, ...], mask: set[int | signal.Signals]) -> Job:
    """Fork the command. Signals are blocked by the caller; ``mask`` is how it found them."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    gate_out, gate_in = os.pipe()
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        os.close(gate_in)
        _become(command, gate_out, theirs, mask)
    os.close(gate_out)
    theirs.close()
    ours.setblocking(False)
    return Job(pid, os.pidfd_open(pid), gate_in, ours)


def _become(
    command: tuple[str, ...], gate: int, line: socket.socket, mask: set[int | signal.Signals]
) -> NoReturn:
    """In the child: wait at the gate, then be the command."""
    try:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.read(gate, 1) != b"g":
            os._exit(127)
        line.set_inheritable(True)
        descriptor = line.fileno()
        os.environ[VARIABLE] = f"{descriptor}:{os.fstat(descriptor).st_ino}"
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, and others expect
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execvp(command[0], command)
    except BaseException as error:
        os.write(2, f"fourge guard: {command[0]} cannot be started: {error}\n".encode())
    os._exit(127)


def descendants(ancestor: int, but: Container[int] = ()) -> dict[int, int]:
    """Living processes below ``ancestor``, each with its parent; parents come first."""
    children: dict[int, list[int]] = {}
    for pid in _processes():
        if pid not in but and (parent := _parent(pid)) is not None:
            children.setdefault(parent, []).append(pid)
    found: dict[int, int] = {}
    ahead = [ancestor]
    for parent in ahead:
        for child in children.get(parent, ()):
            found[child] = parent
            ahead.append(child)
    return found


def _older_than(pid: int) -> set[int]:
    """Processes, living or not, that were there before this one."""
    born = {each: int(stat[_BORN]) for each in _processes() if (stat := _stat(each))}
    return {each for each, at in born.items() if at < born[pid]}


def _processes() -> list[int]:
    names = os.listdir("/proc")  # noqa: PTH208 - a Path for each would cost more than the read
    return [int(name) for name in names if name.isdecimal()]


def _parent(pid: int) -> int | None:
    """None if it has ended; what is left of it then waits for its parent alone."""
    stat = _stat(pid)
    return int(stat[_PARENT]) if stat and stat[_STATE] not in b"ZX" else None


def _stat(pid: int) -> list[bytes]:
    """What the kernel tells of a process, from its state on; nothing if it is gone."""
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        return os.read(descriptor, 1024).rpartition(b")")[2].split()  # a name may hold anything
    except OSError:
        return []
    finally:
        os.close(descriptor)


def signal_one(pid: int, parent: int, number: int) -> None:
    """Signal a process that ``descendants`` listed, if it still is that process."""
    with contextlib.suppress(OSError):
        pidfd = os.pidfd_open(pid)
        try:
            if _parent(pid) in (parent, os.getpid()):
                signal.pidfd_send_signal(pidfd, number)
        finally:
            os.close(pidfd)


def _prctl(option: int, value: int) -> None:
    rest = map(ctypes.c_ulong, (value, 0, 0, 0))  # as wide as the kernel reads them
    if ctypes.CDLL(None, use_errno=True).prctl(option, *rest) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl({option}): {os.strerror(code)}")
