"""A run begins where there is nothing yet, and goes on only as the run it was.

Resuming is bit-exact only if settings, data and base model are what they were. What may differ
is where files lie and how the run is saved and watched.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import torch

from fourge.checkpoint import store
from fourge.checkpoint.state import StoredState
from fourge.config.run import Run, difference
from fourge.core.errors import ConfigError, OutputError
from fourge.core.events import EXPORT, FILE, RUN_FILE
from fourge.harness.planning import Planned
from fourge.harness.setup import Checked, Ready, checkpoint_folder
from fourge.model.swap import choose_device, training_dtype

_FREE = re.compile(
    r"train\.(save_every|keep_checkpoints)|memory\.|guard\.|out:|data\.mix\.\d+\.path:"
)


@dataclass(frozen=True, slots=True)
class Begin:
    """Where a run begins, or goes on: ``kl_weight`` is what the last step left."""

    run: str
    first: int = 1
    kl_weight: float | None = None
    planned: Planned | None = None


def refuse_existing(run: Run) -> None:
    """Raise where a new run would write over something."""
    if store.latest(checkpoint_folder(run)) is not None or (run.out / FILE).exists():
        raise OutputError(
            f"{run.out} holds a run already.",
            why="a record is never written over",
            fix="go on with it by --resume, or choose another out",
        )
    for name in (RUN_FILE, EXPORT):
        if (run.out / name).exists():
            raise OutputError(
                f"{run.out / name} exists.",
                why="the run would write there, and nothing is ever written over",
                fix="choose another out",
            )


def resumed(run: Run) -> StoredState | None:
    """The last checkpoint; None if the run was stopped before its first."""
    if store.latest(checkpoint_folder(run)) is not None:
        return store.open_checkpoint(last_checkpoint(run))
    if not begun(run):
        raise ConfigError(
            f"{run.out} holds no run to resume.", fix="leave out --resume to begin one"
        )
    return None


def dtype_of_run(run: Run, state: StoredState | None) -> torch.dtype:
    """What a run computes in: what it was begun in, also on a processor of another kind."""
    asked = state.meta.get("compute_dtype") if state is not None else None
    return training_dtype(asked or run.model.compute_dtype, choose_device(run.model.device))


def begun(run: Run) -> bool:
    """Whether anything of this run was written: the run file is the first thing."""
    return any((run.out / name).exists() for name in (RUN_FILE, FILE))


def last_checkpoint(run: Run) -> Path:
    path = store.latest(checkpoint_folder(run))
    assert path is not None, "asked for only where there is one"
    return path


def require_same_run(state: StoredState, run: Run, checked: Checked) -> None:
    """Raise if the settings or the data are not those that the run was begun with."""
    begun = Run.from_yaml(state.meta["config"])
    changed = [d for d in difference(begun, run) if not _FREE.match(d)]
    if changed:
        raise ConfigError(
            "The run file is not the one this run was begun with.",
            why="; ".join(changed),
            fix="put it back, or begin another run with another out",
        )
    if state.meta["data"] != checked.dataset.digest:
        raise ConfigError(
            "The data is not what it was when this run was begun.",
            why="a file has changed, or a chat template that writes the date",
            fix="put the files back, or begin another run with another out",
        )


def require_same_base(state: StoredState, ready: Ready) -> None:
    """Raise if the model is not the one that the run was begun with."""
    if state.meta["base"] != ready.base_digest:
        raise ConfigError(
            f"{ready.checked.run.model.path} is not the model this run was begun with.",
            why="its weights have another digest",
            fix="put it back, or begin another run with another out",
        )
