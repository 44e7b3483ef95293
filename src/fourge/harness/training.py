"""A whole training run: begin or resume, step, record, save, export.

Under ``out`` a run leaves

    run.yaml            every setting, as resolved
    events.jsonl        the record
    checkpoints/        step-000050, ...: what resuming needs
    export/             the trained model, as other tools read it

It yields what happens, for whoever shows it. Asked to stop (a signal sets ``Stop``), it does so
at the next micro-step, after a checkpoint.
"""

import fcntl
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fourge import __version__
from fourge.checkpoint import store
from fourge.checkpoint.state import StoredState
from fourge.config.run import Run, difference
from fourge.core.errors import ConfigError, FourgeError, OutputError
from fourge.core.events import FILE, EventLog
from fourge.core.files import whole_file, write_errors
from fourge.harness.setup import Checked, Progress, Ready, check, checkpoint_folder, make_ready
from fourge.model.export import export, outgoing_from_model
from fourge.train.loop import StepResult, Stopped, steps
from fourge.train.state import capture, restore_

EXPORT = "export"
RUN_FILE = "run.yaml"
# What may differ between a run and its continuation without making it another run.
_FREE = re.compile(r"train\.(save_every|keep_checkpoints)|memory\.|out:|data\.mix\.\d+\.path:")


@dataclass(slots=True)
class Stop:
    """Set from a signal handler; read at every micro-step, once ``running``."""

    signal: int = 0
    running: bool = False


@dataclass(frozen=True, slots=True)
class Started:
    run: str
    steps: int
    first: int
    rows: tuple[int, ...]
    trained: int  # parameters, in elements
    tensors: int
    truncated: int
    untaught: int
    device: str
    compute_dtype: str


@dataclass(frozen=True, slots=True)
class Saved:
    path: Path
    step: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Finished:
    """``stopped`` is the signal that ended the run early, or 0."""

    step: int
    stopped: int
    export: Path | None


Happened = Started | StepResult | Saved | Finished
_KIND = {StepResult: "step", Saved: "saved", Finished: "finished"}


def train(
    run: Run, *, resume: bool = False, stop: Stop | None = None, progress: Progress | None = None
) -> Iterator[Happened]:
    """Train, yielding what happens.

    Raises:
        FourgeError: as the user's mistakes are; DivergedError when training cannot go on.
    """
    stop, tell = stop or Stop(), progress or (lambda what, done, total: None)
    if not resume:
        _refuse_existing(run)
    state = _resumed(run) if resume else None
    checked = check(run, tell)
    if state is not None:
        _require_same_run(state, run, checked)
    ready = make_ready(checked, tell)
    run_id, first = uuid.uuid4().hex[:12], 1
    if state is not None:
        _require_same_base(state, ready)
        with store.reading(_last_checkpoint(run)):
            restore_(state, ready.model, ready.optimizer)
        run_id, first = state.meta["run"], state.step + 1
    del state
    with _alone(run.out):
        _write_run_file(run)
        log = EventLog(run.out / FILE, run_id)
        yield from _recorded(ready, log, run_id, first, stop)


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Only one process may train here; the kernel forgets the lock of one that was killed."""
    with write_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        file = (out / ".lock").open("w", encoding="ascii")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OutputError(
                f"Another process is training into {out}.", fix="wait for it, or choose another out"
            ) from error
        yield


def _recorded(
    ready: Ready, log: EventLog, run_id: str, first: int, stop: Stop
) -> Iterator[Happened]:
    started = _started(ready, run_id, first)
    log.write("started", **asdict(started), version=__version__, base=ready.base_digest,
              data=ready.checked.dataset.digest, config=ready.checked.run.digest())  # fmt: skip
    yield started
    try:
        for event in _stepped(ready, run_id, first, stop):
            log.write(_KIND[type(event)], **_plain(event))
            yield event
    except FourgeError as error:
        log.write("failed", error=type(error).__name__, message=str(error))
        raise


def _stepped(ready: Ready, run_id: str, first: int, stop: Stop) -> Iterator[Happened]:
    run, settings = ready.checked.run, ready.checked.run.train
    stop.running = True
    done, saved, saved_at = first - 1, first - 1, time.monotonic()
    loop = steps(ready.model, ready.optimizer, ready.plan, first=first,
                 should_stop=lambda: bool(stop.signal))  # fmt: skip
    try:
        for result in loop:
            done = result.step
            yield result
            minutes = (time.monotonic() - saved_at) / 60
            every = settings.save_every_steps
            if (every and done % every == 0) or minutes >= settings.save_every_minutes:
                yield _save(ready, run_id, done)
                saved, saved_at = done, time.monotonic()
    except Stopped:
        pass
    if done != saved and done:
        yield _save(ready, run_id, done)
    if done < ready.checked.steps:
        yield Finished(done, stop.signal, None)
    else:
        yield Finished(done, 0, _export(ready, run.out / EXPORT))


def _save(ready: Ready, run_id: str, step: int) -> Saved:
    run, start = ready.checked.run, time.perf_counter()
    meta = {
        "step": step,
        "run": run_id,
        "version": __version__,
        "seed": run.train.seed,  # with the step, the key of all random bits
        "cursor": step * run.train.batch * run.train.accumulate,  # rows drawn so far
        "config": run.to_yaml(),
        "data": ready.checked.dataset.digest,
        "base": ready.base_digest,
        "model": run.model.path,
    }
    path = store.save(checkpoint_folder(run), capture(ready.model, ready.optimizer, meta))
    store.prune(checkpoint_folder(run), run.train.keep_checkpoints)
    return Saved(path, step, time.perf_counter() - start)


def _export(ready: Ready, out: Path) -> Path:
    source, scheme = ready.checked.source, ready.checked.run.model.scheme
    target = "safetensors" if scheme == "none" else "compressed-tensors"
    outgoing = outgoing_from_model(ready.model, target, source.write_tokenizer, source.path.stem)
    export(outgoing, out, target, overwrite=True)
    return out


def _refuse_existing(run: Run) -> None:
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


def _resumed(run: Run) -> StoredState | None:
    """The last checkpoint; None if the run was stopped before its first."""
    if store.latest(checkpoint_folder(run)) is not None:
        return store.open_checkpoint(_last_checkpoint(run))
    if not (run.out / FILE).exists():
        raise ConfigError(
            f"{run.out} holds no run to resume.", fix="leave out --resume to begin one"
        )
    return None


def _last_checkpoint(run: Run) -> Path:
    path = store.latest(checkpoint_folder(run))
    assert path is not None, "asked for only where there is one"
    return path


def _require_same_run(state: StoredState, run: Run, checked: Checked) -> None:
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


def _require_same_base(state: StoredState, ready: Ready) -> None:
    if state.meta["base"] != ready.base_digest:
        raise ConfigError(
            f"{ready.checked.run.model.path} is not the model this run was begun with.",
            why="its weights have another digest",
            fix="put it back, or begin another run with another out",
        )


def _write_run_file(run: Run) -> None:
    with whole_file(run.out / RUN_FILE, overwrite=True) as temporary:
        temporary.write_text(run.to_yaml(), encoding="utf-8")


def _started(ready: Ready, run_id: str, first: int) -> Started:
    params = [param for _, param, _ in ready.optimizer.named()]
    data = ready.checked.dataset
    return Started(
        run_id, ready.checked.steps, first, data.rows, sum(p.numel() for p in params), len(params),
        data.truncated, data.untaught, str(params[0].device), ready.compute_dtype,
    )  # fmt: skip


def _plain(event: Happened) -> dict[str, Any]:
    values = {k: str(v) if isinstance(v, Path) else v for k, v in asdict(event).items()}
    if isinstance(event, StepResult):
        values["tokens_per_s"] = round(event.tokens_per_s, 3)
    return values
