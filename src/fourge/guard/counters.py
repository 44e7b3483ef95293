"""What the kernel says is left of memory: of the machine, and of the cgroup we are in.

Two things can run out. The machine: ``MemAvailable`` of /proc/meminfo, free memory and what can
be had back from caches; on a machine whose GPU shares its memory this is the only number that
sees the driver's allocations. And a cgroup, where a container or a service manager set a limit:
what counts against it is its usage without the file cache it could drop (``inactive_file``).
A limit set on any ancestor holds too, so every level up to the mount is read, and the one with
the least left counts.

Files are opened once and read again with ``pread``: at the worst moment there is no path to look
up and no descriptor to ask for. What cannot be read or understood is an error that names the file,
never a guess. A kernel without cgroups, or a level without a limit, is no error.

Left out on purpose: swap (a machine that swaps its training state is as good as stopped), and
``memory.high`` (it slows a job down, it does not end it).
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

# v1 says "none" with the largest multiple of the page size below 2**63, which depends on the page.
_NO_LIMIT = 1 << 62
_BUFFER = 1 << 14  # memory.stat is the longest, some 5 kB


class CounterError(Exception):
    """A source of the guard that cannot be read or understood."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One look, in bytes. ``cgroup_used`` is without cache that could be dropped."""

    total: int
    available: int
    free: int
    swap_free: int
    cgroup_limit: int | None
    cgroup_used: int | None

    @property
    def left(self) -> int:
        """What can still be had: of the machine or of the cgroup, whichever is less."""
        if self.cgroup_limit is None or self.cgroup_used is None:
            return self.available
        return min(self.available, self.cgroup_limit - self.cgroup_used)

    @property
    def used(self) -> int:
        """What is in use, on the side that ``left`` comes from."""
        if self.cgroup_used is None or self.left == self.available:
            return self.total - self.available
        return self.cgroup_used

    @property
    def capacity(self) -> int:
        """All that a job could ever have: the machine, or the cgroup's limit if that is less."""
        return self.total if self.cgroup_limit is None else min(self.total, self.cgroup_limit)


class Counters:
    """The kernel's memory counters, kept open. ``root`` is another tree of files, for tests."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._files: list[_File] = []
        try:
            self._meminfo = self._open(root / "proc/meminfo")
            self._levels = [
                _Level(
                    limit=self._open(folder / names.limit),
                    usage=self._open(folder / names.usage),
                    stat=self._open(folder / "memory.stat"),
                    cache=names.cache,
                )
                for folder, names in _levels(root)
            ]
        except CounterError:
            self.close()
            raise

    def _open(self, path: Path) -> "_File":
        self._files.append(_File(path))
        return self._files[-1]

    def read(self) -> Reading:
        """One look at everything.

        Raises:
            CounterError: a file cannot be read, or does not say what it has to.
        """
        meminfo = self._meminfo.read()
        limit, used = min(
            (found for level in self._levels if (found := level.read())),
            key=lambda found: found[0] - found[1],
            default=(None, None),
        )
        return Reading(
            total=self._meminfo.number(meminfo, _TOTAL) * 1024,
            available=self._meminfo.number(meminfo, _AVAILABLE) * 1024,
            free=self._meminfo.number(meminfo, _FREE) * 1024,
            swap_free=self._meminfo.number(meminfo, _SWAP_FREE) * 1024,
            cgroup_limit=limit,
            cgroup_used=used,
        )

    def sources(self) -> tuple[str, ...]:
        """The files that are looked at."""
        return tuple(str(file.path) for file in self._files)

    def close(self) -> None:
        while self._files:
            os.close(self._files.pop().descriptor)

    def __enter__(self) -> "Counters":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


class _File:
    """One file of the kernel's, open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise CounterError(f"{path} cannot be opened: {error.strerror}") from error

    def read(self) -> bytes:
        try:
            return os.pread(self.descriptor, _BUFFER, 0)
        except OSError as error:
            raise CounterError(f"{self.path} cannot be read: {error.strerror}") from error

    def number(self, data: bytes, field: "_Field") -> int:
        found = field.pattern.search(data)
        if found is None:
            raise CounterError(f"{self.path} has no {field.name}")
        return int(found[1])


class _Field(NamedTuple):
    """How a number is found in a file, and what it is called if it is not."""

    name: str
    pattern: re.Pattern[bytes]


def _line(name: str) -> _Field:
    return _Field(name, re.compile(rf"^{name}[ :]+(\d+)".encode(), re.MULTILINE))


_TOTAL, _AVAILABLE, _FREE, _SWAP_FREE = map(
    _line, ("MemTotal", "MemAvailable", "MemFree", "SwapFree")
)
_BARE = _Field("number", re.compile(rb"\A(\d+)\s*\Z"))


class _Names(NamedTuple):
    """What a version of cgroups calls its files."""

    limit: str
    usage: str
    cache: _Field


_V1 = _Names("memory.limit_in_bytes", "memory.usage_in_bytes", _line("total_inactive_file"))
_V2 = _Names("memory.max", "memory.current", _line("inactive_file"))


@dataclass(frozen=True, slots=True)
class _Level:
    """The files of one cgroup."""

    limit: _File
    usage: _File
    stat: _File
    cache: _Field

    def read(self) -> tuple[int, int] | None:
        """(limit, used), or None where no limit is set."""
        text = self.limit.read()
        if text == b"max\n":
            return None
        limit = self.limit.number(text, _BARE)
        if limit >= _NO_LIMIT:
            return None
        usage = self.usage.number(self.usage.read(), _BARE)
        return limit, usage - self.stat.number(self.stat.read(), self.cache)


def _levels(root: Path) -> Iterator[tuple[Path, _Names]]:
    """Our cgroup and those above it that can have a limit.

    In a container the mount may be our own cgroup, under a path that only the host knows: then no
    folder of that path is there, and the walk ends at the mount all the same.
    """
    mount, inside, names = _own_cgroup(root)
    own = mount / inside.strip("/")
    for folder in (own, *own.parents):
        if (folder / names.limit).exists():  # the root of v2 has no such file
            yield folder, names
        if folder == mount:
            return


def _own_cgroup(root: Path) -> tuple[Path, str, _Names]:
    """(where the memory controller is mounted, our path below it, its version's names).

    A machine that has both versions counts memory in one: in v1, if v1 lists ``memory``.
    """
    mount = root / "sys/fs/cgroup"
    try:
        text = (root / "proc/self/cgroup").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:  # a kernel without cgroups
        return mount, "", _V2
    except OSError as error:
        raise CounterError(f"/proc/self/cgroup cannot be read: {error.strerror}") from error
    path = ""
    for line in text.splitlines():
        _, controllers, inside = line.split(":", 2)
        if "memory" in controllers.split(","):
            return mount / "memory", inside, _V1
        if not controllers:
            path = inside
    return mount, path, _V2
