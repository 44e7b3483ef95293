"""The options of ``fourge guard``, once: both command lines are made from this table.

``python -m fourge.guard`` is the process that watches and loads the standard library alone;
``fourge guard`` offers the same options beside the other verbs and becomes that process.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fourge.guard.counters import Reading
from fourge.guard.policy import Limits, default_floor, margins
from fourge.guard.sizes import gib, parse_size

STATUS = (
    "Exit status: 124 stopped by the guard, 2 wrong usage, else the command's own (128 + N after "
    "signal N)."
)


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    metavar: str
    help: str
    default: str | None = None
    hidden: bool = False

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


OPTIONS = (
    Option("limit", "SIZE", "What may be in use on the machine.  [default: no limit]"),
    Option("floor", "SIZE", "What must stay left.  [default: 8GiB; a tenth below 64 GiB]"),
    Option("over_s", "S", "Kill only after so long beyond a line.", "0"),
    Option("grace_s", "S", "From asking it to leave to killing it.", "20"),
    Option("silent_s", "S", "Ask a trainer silent for so long; 0: never.", "0"),
    Option("recover_s", "S", "Wait at most so long for memory to come back.", "180"),
    Option("log", "FILE", "Append what happens, as JSON lines, synced.  [default: none]"),
    Option("root", "DIR", "Read proc and sys below this folder.", "/", hidden=True),
)


class UsageError(Exception):
    """Options that cannot be."""


def guard_argv(command: Sequence[str], options: Mapping[str, str | None]) -> list[str]:
    """The argument list of a process that runs ``command`` under a guard.

    ``-P``: a file of the working folder that is called like a standard module is not taken for it.
    """
    given = [
        f"{option.flag}={options[option.name]}"
        for option in OPTIONS
        if options.get(option.name) is not None
    ]
    return [sys.executable, "-P", "-m", "fourge.guard", *given, "--", *command]


@dataclass(frozen=True, slots=True)
class Settings:
    """The options, understood. Sizes in bytes; None: by rule."""

    command: tuple[str, ...]
    limit: int | None
    floor: int | None
    over_s: float
    grace_s: float
    silent_s: float
    recover_s: float
    log: Path | None
    root: Path

    def limits(self, reading: Reading) -> Limits:
        """The lines on this machine.

        Raises:
            UsageError: this machine cannot have them.
        """
        floor = default_floor(reading.capacity) if self.floor is None else self.floor
        if floor >= reading.capacity:
            raise UsageError(f"--floor {gib(floor)}: there are only {gib(reading.capacity)} in all")
        if self.limit is not None and self.limit >= reading.total:
            raise UsageError(f"--limit {gib(self.limit)}: the machine has {gib(reading.total)}")
        warn, ask = margins(reading.capacity)
        return Limits(floor, self.limit, warn, ask, self.over_s, self.grace_s, self.silent_s)


def settings(command: Sequence[str], options: Mapping[str, str | None]) -> Settings:
    """Understand the options.

    Raises:
        UsageError: the first that cannot be understood, by name.
    """
    if not command:
        raise UsageError("there is no command; write it after --, as in: fourge guard -- sleep 5")
    log = options.get("log")
    return Settings(
        tuple(command),
        limit=_size(options, "limit"),
        floor=_size(options, "floor"),
        over_s=_seconds(options, "over_s"),
        grace_s=_seconds(options, "grace_s"),
        silent_s=_seconds(options, "silent_s"),
        recover_s=_seconds(options, "recover_s"),
        log=None if log is None else Path(log),
        root=Path(options.get("root") or "/"),
    )


def _size(options: Mapping[str, str | None], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    try:
        return parse_size(text)
    except ValueError as error:
        raise UsageError(f"--{name}: {error}") from error


def _seconds(options: Mapping[str, str | None], name: str) -> float:
    text = options.get(name) or ""
    flag = "--" + name.replace("_", "-")
    try:
        seconds = float(text)
    except ValueError:
        raise UsageError(f"{flag}: {text!r} is not a number of seconds") from None
    if not math.isfinite(seconds) or seconds < 0:
        raise UsageError(f"{flag}: {text} is not a time to wait")
    return seconds
