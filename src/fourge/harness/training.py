"""A whole training run: begin or resume, step, record, save, export.

Under ``out`` a run leaves

    run.yaml            every setting, as resolved
    events.jsonl        the record
    checkpoints/        step-000050, ...: what resuming needs
    export/             the trained model, as other tools read it

It yields what happens, for whoever shows it. Asked to stop (a signal sets ``Stop``), it does so
at the next micro-step, after a checkpoint. Warned by its guard that memory is short, it saves,
gives back what can be made again, and goes on; if the guard is gone, it stops.
"""

import fcntl
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fourge import __version__
from fourge.checkpoint import store
from fourge.config.run import Run
from fourge.core.errors import FourgeError, OutputError
from fourge.core.events import FILE, RUN_FILE, EventLog
from fourge.core.files import whole_file, write_errors
from fourge.guard.client import Beat
from fourge.harness.planning import require_fits
from fourge.harness.resuming import (
    EXPORT,
    Begin,
    last_checkpoint,
    refuse_existing,
    require_same_base,
    require_same_run,
    resumed,
)
from fourge.harness.saving import Saved, Saver
from fourge.harness.setup import Progress, Ready, check, make_ready
from fourge.harness.surroundings import surroundings
from fourge.model.export import export, outgoing_from_model
from fourge.train.loop import StepResult, Stopped, steps
from fourge.train.relief import give_back
from fourge.train.state import restore_


@dataclass(slots=True)
class Stop:
    """Why to stop; read at every micro-step, once ``running``."""

    signal: int = 0  # set from a signal handler
    reason: str = ""  # set by whoever pulls the run, and has seen enough
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
class Finished:
    """``stopped`` is the signal that ended the run early, or 0; ``reason`` is that of ``Stop``."""

    step: int
    stopped: int
    export: Path | None
    reason: str = ""


Happened = Started | StepResult | Saved | Finished
_KIND = {StepResult: "step", Saved: "saved", Finished: "finished"}


def train(
    run: Run, *, resume: bool = False, stop: Stop | None = None, progress: Progress | None = None
) -> Iterator[Happened]:
    """Train, yielding what happens.

    Raises:
        FourgeError: as the user's mistakes are; DivergedError when training cannot go on.
    """
    ready, begin = prepared(run, resume=resume, progress=progress)
    yield from trained(ready, begin, stop or Stop())


def prepared(
    run: Run, *, resume: bool = False, progress: Progress | None = None
) -> tuple[Ready, Begin]:
    """Everything checked and loaded, at the run's beginning or at its last checkpoint.

    Raises:
        FourgeError: as the user's mistakes are.
    """
    tell = progress or (lambda what, done, total: None)
    if not resume:
        refuse_existing(run)
    state = resumed(run) if resume else None
    checked = check(run, tell)
    if state is not None:
        require_same_run(state, run, checked)
    planned = require_fits(run)
    ready = make_ready(checked, tell)
    if state is None:
        return ready, Begin(uuid.uuid4().hex[:12], planned=planned)
    require_same_base(state, ready)
    with store.reading(last_checkpoint(run)):
        restore_(state, ready.model, ready.optimizer)
    first, weight = state.step + 1, state.meta.get("kl_weight")
    return ready, Begin(state.meta["run"], first, weight, planned)


def trained(ready: Ready, begin: Begin, stop: Stop) -> Iterator[Happened]:
    """Train what is prepared. Whoever pulls this may look at the model between two events.

    Raises:
        DivergedError: training cannot go on.
    """
    run = ready.checked.run
    with alone(run.out):
        log = EventLog(run.out / FILE, begin.run)
        if begin.planned is not None:
            log.write("planned", **begin.planned.numbers())
        _write_run_file(run)  # after the record is begun: killed between, the run can be resumed
        yield from _recorded(ready, log, begin, stop)


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """Only one process may work here; the kernel forgets the lock of one that was killed."""
    with write_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        file = (out / ".lock").open("w", encoding="ascii")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OutputError(
                f"Another process works in {out}.", fix="wait for it, or choose another out"
            ) from error
        yield


def _recorded(ready: Ready, log: EventLog, begin: Begin, stop: Stop) -> Iterator[Happened]:
    started = _started(ready, begin)
    log.write("started", **asdict(started), version=__version__, base=ready.base_digest,
              data=ready.checked.dataset.digest, config=ready.checked.run.digest(),
              **surroundings())  # fmt: skip
    yield started
    try:
        for event in _stepped(ready, begin, stop):
            log.write(_KIND[type(event)], **_plain(event))
            yield event
    except FourgeError as error:
        log.write("failed", error=type(error).__name__, message=str(error))
        raise


def _stepped(ready: Ready, begin: Begin, stop: Stop) -> Iterator[Happened]:
    stop.running = True
    saver, guard = Saver(ready, begin), Beat()
    loop = steps(ready.model, ready.optimizer, ready.plan, first=begin.first,
                 kl_weight=begin.kl_weight,
                 should_stop=lambda: _between(guard, saver, stop, ready.model))  # fmt: skip
    try:
        for result in loop:
            saver.finished(result)
            yield from saver.happened()
            yield result
            if saver.is_due():
                saver.save()
                yield from saver.happened()
    except Stopped:
        pass
    saver.save()
    yield from saver.happened()
    if saver.done < ready.checked.steps:
        yield Finished(saver.done, stop.signal, None, stop.reason)
    else:
        yield Finished(saver.done, 0, _export(ready, ready.checked.run.out / EXPORT))


def _between(guard: Beat, saver: "Saver", stop: Stop, model: Any) -> bool:
    """At every micro-step: a sign of life, what the guard has to say, whether to stop."""
    guard.beat()
    if guard.warned():
        saver.save()
        give_back(model)
    if guard.lost and not stop.signal:
        stop.signal = signal.SIGTERM
    return bool(stop.signal or stop.reason)


def _export(ready: Ready, out: Path) -> Path:
    source, scheme = ready.checked.source, ready.checked.run.model.scheme
    target = "safetensors" if scheme == "none" else "compressed-tensors"
    outgoing = outgoing_from_model(ready.model, target, source.write_tokenizer, source.path.stem)
    export(outgoing, out, target, overwrite=True)
    return out


def _write_run_file(run: Run) -> None:
    with whole_file(run.out / RUN_FILE, overwrite=True) as temporary:
        temporary.write_text(run.to_yaml(), encoding="utf-8")


def _started(ready: Ready, begin: Begin) -> Started:
    params = [param for _, param, _ in ready.optimizer.named()]
    data = ready.checked.dataset
    return Started(
        begin.run, ready.checked.steps, begin.first, data.rows, sum(p.numel() for p in params),
        len(params), data.truncated, data.untaught, str(params[0].device), ready.compute_dtype,
    )  # fmt: skip


def _plain(event: Happened) -> dict[str, Any]:
    values = {k: str(v) if isinstance(v, Path) else v for k, v in asdict(event).items()}
    if isinstance(event, StepResult):
        values["tokens_per_s"] = round(event.tokens_per_s, 3)
    return values
