"""Checkpoints of a run: when, and with what beside the tensors, so that it can go on."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fourge import __version__
from fourge.checkpoint import store
from fourge.harness.resuming import Begin
from fourge.harness.setup import Ready, checkpoint_folder
from fourge.train.loop import StepResult
from fourge.train.state import capture


@dataclass(frozen=True, slots=True)
class Saved:
    path: Path
    step: int
    seconds: float


class Saver:
    """Saves the last finished step, once."""

    def __init__(self, ready: Ready, begin: Begin) -> None:
        self._ready, self._run_id = ready, begin.run
        self.done = self._saved = begin.first - 1
        self._kl_weight = begin.kl_weight
        self._saved_at = time.monotonic()
        self._happened: list[Saved] = []

    def finished(self, result: StepResult) -> None:
        self.done, self._kl_weight = result.step, result.kl_weight

    def is_due(self) -> bool:
        settings = self._ready.checked.run.train
        minutes = (time.monotonic() - self._saved_at) / 60
        every = settings.save_every_steps
        return bool(every and self.done % every == 0) or minutes >= settings.save_every_minutes

    def save(self) -> None:
        if self.done == self._saved:
            return
        meta = {"step": self.done, "run": self._run_id, "kl_weight": self._kl_weight}
        self._happened.append(_save(self._ready, meta))
        self._saved, self._saved_at = self.done, time.monotonic()

    def happened(self) -> list[Saved]:
        """What was saved since the last call."""
        happened, self._happened = self._happened, []
        return happened


def _save(ready: Ready, meta: dict[str, Any]) -> Saved:
    run, start = ready.checked.run, time.perf_counter()
    step = meta["step"]
    meta = {
        **meta,
        "version": __version__,
        "compute_dtype": ready.compute_dtype,
        "seed": run.train.seed,  # with the step, the key of all random bits
        "cursor": step * run.train.batch * run.train.accumulate,  # rows drawn so far
        "config": run.to_yaml(),
        "data": ready.checked.dataset.digest,
        "base": ready.base_digest,
        "model": run.model.path,
    }
    path = _written(ready, checkpoint_folder(run), meta)
    return Saved(path, step, time.perf_counter() - start)


def _written(ready: Ready, folder: Path, meta: dict[str, Any]) -> Path:
    """The checkpoint, after all but the last few were removed."""
    keep = ready.checked.run.train.keep_checkpoints
    if ready.crew.size > 1:
        from fourge.shard.saving import save_together

        return save_together(ready.crew, folder, ready.model, ready.optimizer, meta, keep)
    path = store.save(folder, capture(ready.model, ready.optimizer, meta))
    store.prune(folder, keep)
    return path
