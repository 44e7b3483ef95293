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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fourge import __version__
from fourge.checkpoint import store
from fourge.checkpoint.state import StoredState
from fourge.config.run import Run
from fourge.core.content import digest_of_path
from fourge.core.crew import ALONE, Crew
from fourge.core.errors import FourgeError, OutputError
from fourge.core.events import EXPORT, FILE, RUN_FILE, EventLog
from fourge.core.files import whole_file, write_errors
from fourge.guard.client import Beat
from fourge.harness.agreeing import examined, require_same_model
from fourge.harness.exporting import write_export
from fourge.harness.resuming import Begin, dtype_of_run, last_checkpoint, require_same_base
from fourge.harness.saving import Saved, Saver
from fourge.harness.setup import Progress, Ready, checkpoint_folder, make_ready
from fourge.harness.surroundings import surroundings
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
    digest: str = field(default="", compare=False)  # of the export


Happened = Started | StepResult | Saved | Finished
_KIND = {StepResult: "step", Saved: "saved", Finished: "finished"}


def train(
    run: Run,
    *,
    resume: bool = False,
    stop: Stop | None = None,
    progress: Progress | None = None,
    crew: Crew = ALONE,
) -> Iterator[Happened]:
    """Train, yielding what happens.

    Raises:
        FourgeError: as the user's mistakes are; DivergedError when training cannot go on.
    """
    ready, begin = prepared(run, resume=resume, progress=progress, crew=crew)
    yield from trained(ready, begin, stop or Stop())


def prepared(
    run: Run, *, resume: bool = False, progress: Progress | None = None, crew: Crew = ALONE
) -> tuple[Ready, Begin]:
    """Everything checked and loaded, at the run's beginning or at its last checkpoint.

    Raises:
        FourgeError: as the user's mistakes are.
    """
    tell = progress or (lambda what, done, total: None)
    found = examined(run, resume, tell, crew)
    state, planned = found.state, found.planned
    ready = make_ready(found.checked, tell, crew, dtype_of_run(run, state))
    require_same_model(crew, ready.base_digest)
    if state is None:
        return ready, Begin(crew.of_first(uuid.uuid4().hex[:12]), planned=planned)
    require_same_base(state, ready)
    _restore(state, ready)
    first, weight = state.step + 1, state.meta.get("kl_weight")
    return ready, Begin(state.meta["run"], first, weight, planned)


def _restore(state: StoredState, ready: Ready) -> None:
    path = last_checkpoint(ready.checked.run)
    if ready.crew.size > 1:
        from fourge.shard.saving import load_together

        load_together(ready.crew, path, state, ready.model, ready.optimizer)
        return
    with store.reading(path):
        restore_(state, ready.model, ready.optimizer)


def trained(ready: Ready, begin: Begin, stop: Stop) -> Iterator[Happened]:
    """Train what is prepared. Whoever pulls this may look at the model between two events.

    Raises:
        DivergedError: training cannot go on.
    """
    run = ready.checked.run
    if not ready.crew.is_first:  # the first has the record, and the lock
        yield _started(ready, begin)
        yield from _stepped(ready, begin, stop)
        return
    with alone(run.out):
        log = EventLog(run.out / FILE, begin.run)
        if begin.planned is not None:
            log.write("planned", **begin.planned.numbers())
        _write_run_file(run)  # after the record is begun: killed between, the run can be resumed
        if begin.first > 1:  # killed while removing a checkpoint after the last: nothing else would
            store.prune(checkpoint_folder(run), run.train.keep_checkpoints)
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
    saver, guard, crew = Saver(ready, begin), Beat(), ready.crew
    loop = steps(ready.model, ready.optimizer, ready.plan, first=begin.first,
                 kl_weight=begin.kl_weight,
                 should_stop=lambda: _between(guard, saver, stop, ready))  # fmt: skip
    try:
        for result in loop:
            saver.finished(result)
            yield from saver.happened()
            yield result
            if crew.any(saver.is_due()):  # clocks differ
                saver.save()
                yield from saver.happened()
    except Stopped:
        pass
    saver.save()
    yield from saver.happened()
    if saver.done < ready.checked.steps:
        yield Finished(saver.done, stop.signal, None, stop.reason)
    else:
        export = write_export(ready, ready.checked.run.out / EXPORT)
        digest = digest_of_path(export) if crew.is_first else ""
        yield Finished(saver.done, 0, export, digest=digest)


def _between(guard: Beat, saver: "Saver", stop: Stop, ready: Ready) -> bool:
    """At every micro-step: a sign of life, what the guard has to say, whether to stop.

    What one of a crew is told, all do: they save together, and leave together.
    """
    guard.beat()
    warned = guard.warned()
    if guard.lost and not stop.signal:
        stop.signal = signal.SIGTERM
    warnings, stops = ready.crew.sums([warned, bool(stop.signal or stop.reason)])
    if warnings:
        saver.save()
        give_back(ready.model)
    if stops and not (stop.signal or stop.reason):
        stop.signal = signal.SIGTERM  # asked elsewhere
    return bool(stops)


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
