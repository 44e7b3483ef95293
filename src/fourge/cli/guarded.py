"""Commands that run under a guard of their own: they start it, and it starts them again.

The process that the user started becomes the guard, which loads the standard library alone, and
runs the very same command as its child. Signals, output and exit status are the child's; 124 means
that the guard stopped it.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fourge.core.errors import ConfigError
from fourge.core.files import write_errors
from fourge.guard.client import guarded
from fourge.guard.options import guard_argv
from fourge.guard.record import FILE

if TYPE_CHECKING:
    from fourge.config.experiment import Experiment
    from fourge.config.run import Run


def run_under_guard(options: Mapping[str, str | None]) -> None:
    """Return if this process has a guard; else become it, and never return."""
    if guarded():
        return
    if sys.platform != "linux":
        raise ConfigError(
            "The guard reads Linux's counters, and this is not Linux.",
            fix="switch it off: --set guard.enabled=false, or --no-guard",
        )
    sys.stdout.flush()
    sys.stderr.flush()
    argv = guard_argv([sys.executable, "-m", "fourge", *sys.argv[1:]], options)
    os.execv(argv[0], argv)


def guard_options(run: "Run | Experiment", rank: int = 0) -> dict[str, str | None]:
    """What a settings file says to its guard, as the guard's own options.

    Every rank of a run has a guard, and those after the first a log of their own.
    """
    return {
        "limit": _given(run.memory.limit),
        "floor": _given(run.guard.floor),
        "over_s": str(run.guard.over_s),
        "grace_s": str(run.guard.grace_s),
        "silent_s": str(run.guard.silent_s),
        "log": str(_log_in(run.out, rank)),
    }


def _given(size: str) -> str | None:
    return None if size == "auto" else size


def _log_in(out: Path, rank: int) -> Path:
    with write_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    name = Path(FILE)
    return out / (name if rank == 0 else name.with_stem(f"{name.stem}-{rank}"))
