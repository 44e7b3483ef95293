"""Checkpoints in a folder: ``step-000100``, ``step-000200``, ... each whole or not there.

A checkpoint is written into a hidden sibling, forced to the disk, and only then named. A run
that was killed while saving leaves that sibling, with its process id in the name; ``prune``
removes those whose process is gone.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fourge.checkpoint.disk import put_in_place, remove_folder, sync
from fourge.checkpoint.files import Progress, looks_whole, open_state, write_state
from fourge.checkpoint.state import StoredState, TrainState
from fourge.core.errors import FormatError
from fourge.core.files import whole_folder, write_errors

CHECKPOINTS = "checkpoints"  # the name of the folder, inside that of a run
_NAME = re.compile(r"step-([0-9]{6,})")
_LEFTOVER = re.compile(r"\.+(step-[0-9]{6,})\.([1-9][0-9]{0,8})\..*(partial|old)")


def save(folder: Path, state: TrainState, *, progress: Progress | None = None) -> Path:
    """Write a checkpoint of this state, in place of one of the same step, and return its path.

    Raises:
        OutputError: it cannot be written, as on a full disk; nothing is left behind.
    """
    with placed(folder, state.step) as temporary:
        write_state(temporary, state, progress)
    return folder / name_of(state.step)


def name_of(step: int) -> str:
    return f"step-{step:06d}"


@contextmanager
def placed(folder: Path, step: int) -> Iterator[Path]:
    """An empty folder that is the checkpoint of a step when the block has filled it.

    Raises:
        OutputError: it cannot be written; nothing is left behind.
    """
    target = folder / name_of(step)
    with write_errors(target):  # a leftover with our own process id is of one that had it before
        _remove_leftovers(folder, lambda pid: pid == os.getpid())
    hidden = target.with_name(f".{target.name}.{os.getpid()}.partial")
    fresh = hidden if target.is_dir() else target
    with whole_folder(fresh) as temporary:
        yield temporary
    with write_errors(target):
        if fresh is hidden:
            put_in_place(hidden, target)
        sync(folder)
        sync(folder.resolve().parent)


def load(path: Path) -> TrainState:
    """Read a checkpoint, every byte of it checked.

    Raises:
        FormatError: something is damaged or missing; an earlier checkpoint is named if there is.
    """
    with reading(path):
        stored = open_state(path)
        return TrainState(dict(stored.tensors), stored.meta)


def open_checkpoint(path: Path) -> StoredState:
    """A checkpoint whose tensors are read when they are asked for, inside ``reading``.

    Raises:
        FormatError: as ``load``, for what can be seen without reading the tensors.
    """
    with reading(path):
        return open_state(path)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """A block in which a checkpoint that proves damaged is named with the one before it."""
    try:
        yield
    except FormatError as error:
        fix = _earlier(path) or error.fix
        raise FormatError(error.problem, why=error.why, fix=fix) from error


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a folder, by their names, first step first."""
    found = [path for path in folder.glob("step-*") if _step(path) is not None and path.is_dir()]
    return sorted(found, key=lambda path: _step(path) or 0)


def latest(folder: Path) -> Path | None:
    """The checkpoint with the most steps."""
    return next(reversed(checkpoints(folder)), None)


def prune(folder: Path, keep: int) -> list[Path]:
    """Remove all but the last ``keep`` checkpoints (the last one stays in any case).

    What killed processes left behind goes too. Returns the checkpoints that were removed.
    """
    with write_errors(folder):
        _remove_leftovers(folder, lambda pid: not _is_running(pid))
        old = checkpoints(folder)[: -max(keep, 1)]
        for path in old:
            remove_folder(path)
    return old


def _earlier(path: Path) -> str:
    """The last checkpoint before this one whose files are all there, as advice."""
    step = _step(path)
    for other in reversed(checkpoints(path.parent)):
        if step is not None and (_step(other) or 0) < step and looks_whole(other):
            return (
                f"remove {path}, and the run goes on from {other}, whose files are all there in "
                "their full size"
            )
    return ""


def _step(path: Path) -> int | None:
    """The step that a name stands for; None if it is not the name of a checkpoint."""
    match = _NAME.fullmatch(path.name)
    step = int(match[1]) if match else None
    return step if step is not None and path.name == name_of(step) else None


def _remove_leftovers(folder: Path, is_dead: Callable[[int], bool]) -> None:
    """Remove what dead processes left; an old checkpoint that was set aside takes its name back."""
    for path in sorted(folder.glob(".*step-*")):
        match = _LEFTOVER.fullmatch(path.name)
        if not match or not path.is_dir() or not is_dead(int(match[2])):
            continue
        target = folder / match[1]
        if match[3] == "old" and not target.exists():
            path.replace(target)
        else:
            remove_folder(path)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
