"""What the guard saw and did, in a file that survives a power cycle.

JSON lines: ``start``, ``sample`` (one a second, some 80 bytes), ``warned``, ``asked``, ``killed``
and the like with the reason and the numbers, each followed by the last minute of samples, and
``end``. They have the form of a run's events; ``t`` is wall-clock time, ``s`` seconds since the
start.

A disk can take seconds to sync while a checkpoint is written, and a terminal can be stopped with
Ctrl-S; the loop waits for neither. Lines go to a thread that writes and syncs them, in order. A
full disk is said once and the guard goes on.
"""

import contextlib
import errno
import json
import os
import select
import threading
import time
from collections import deque
from pathlib import Path
from queue import SimpleQueue
from typing import Any

FILE = "guard.jsonl"  # beside the events of a run
SAMPLE_EVERY_S = 1.0
_KEPT_EVERY_S = 0.1
_KEPT = 600  # a minute of them
_LATEST = 100  # every look of the last moments, however close
_CLOSE_FOR_S = 10.0
_STACK = 1 << 18  # bytes; all of it will be locked


class Record:
    """Opened before the watch begins and kept open; without a path only messages are shown."""

    def __init__(self, path: Path | None) -> None:
        self._file = None
        if path is not None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._file = os.open(path, flags, 0o644)
            _sync_folder(path.parent)
        self._began = time.monotonic()
        self._minute: deque[tuple[float, int, int]] = deque(maxlen=_KEPT)
        self._latest: deque[tuple[float, int, int]] = deque(maxlen=_LATEST)
        self._written_at = self._kept_at = float("-inf")
        self._lines: SimpleQueue[dict[str, Any] | str | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def open(self) -> None:
        """Start the thread: after the fork, which must not meet one."""
        threading.stack_size(_STACK)
        self._thread.start()

    def sample(self, at: float, left: int, headroom: int) -> None:
        """One look, in bytes; most are only remembered."""
        seconds = round(at - self._began, 3)
        look = (seconds, left >> 20, headroom >> 20)
        self._latest.append(look)
        if at - self._kept_at >= _KEPT_EVERY_S:
            self._kept_at = at
            self._minute.append(look)
        if at - self._written_at >= SAMPLE_EVERY_S:
            self._written_at = at
            self._line("sample", s=seconds, left_mib=look[1], headroom_mib=look[2])

    def change(self, kind: str, **numbers: Any) -> None:
        """Something happened: the line, and what led to it."""
        self._line(kind, s=round(time.monotonic() - self._began, 3), **numbers)
        if self._latest:
            first = self._latest[0][0]
            looks = [look for look in self._minute if look[0] < first] + list(self._latest)
            self._line("minute", columns=["s", "left_mib", "headroom_mib"], looks=looks)

    def say(self, text: str) -> None:
        """One line for whoever watches."""
        self._lines.put(f"fourge guard: {text}\n")

    def close(self) -> None:
        """Write what is waiting; a disk that does not answer is not waited for."""
        self._lines.put(None)
        self._thread.join(_CLOSE_FOR_S)

    def _line(self, kind: str, **numbers: Any) -> None:
        if self._file is not None:
            self._lines.put({"v": 1, "t": round(time.time(), 3), "kind": kind, **numbers})

    def _write(self) -> None:
        failed = False
        while (line := self._lines.get()) is not None:
            if isinstance(line, str):
                _show(line)
                continue
            try:
                self._append(line)
            except OSError as error:
                if not failed:
                    _show(f"fourge guard: the log cannot be written: {error.strerror}\n")
                failed = True

    def _append(self, line: dict[str, Any]) -> None:
        assert self._file is not None, "lines are queued for a file only"
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        if os.write(self._file, data) < len(data):  # the disk became full in the middle
            os.write(self._file, b"\n")
        os.fdatasync(self._file)


def _sync_folder(folder: Path) -> None:
    """A file that was just made is found after a power cycle only if its folder was synced."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:  # some file systems have folders that cannot be synced
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def _show(line: str) -> None:
    """On stderr, if it takes it now: a stopped terminal or a full pipe would hold us up."""
    waiting = select.poll()
    waiting.register(2, select.POLLOUT)
    if any(event & select.POLLOUT for _, event in waiting.poll(0)):
        with contextlib.suppress(OSError):
            os.write(2, line.encode())
