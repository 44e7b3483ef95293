"""One attempt: train from the clean weights, and look at the model every so many steps.

A look passes: training rests there, before it forgets more, and the scan decides; if nothing made
of it passes the gates, training goes on to the next look that does. A look finds a collapse: the
attempt ends. A loss that is not finite ends it too.

Looks change no bit of the training, so an attempt that is killed and goes on, looking again at the
same steps, ends where it would have ended.
"""

from collections.abc import Generator
from dataclasses import asdict
from typing import Any

from fourge.checkpoint import store
from fourge.config.run import Run
from fourge.core.content import digest_of_path
from fourge.core.errors import ConfigError, DivergedError, FormatError
from fourge.core.process import trim_heap
from fourge.evaluate.cache import Kept
from fourge.evaluate.check import ask_loaded
from fourge.harness.exam import Exam, collapse, numbers
from fourge.harness.record import Artifact, Rest
from fourge.harness.resuming import begun
from fourge.harness.setup import Ready, checkpoint_folder
from fourge.harness.training import Finished, Happened, Started, prepared, trained
from fourge.harness.work import START, Looked, Told, Work
from fourge.train.loop import StepResult, Stopped
from fourge.train.prepare import storage_dtype
from fourge.train.serving import serving


def train_attempt(work: Work, exam: Exam, name: str, run: Run) -> Generator[Told, None, Rest | int]:
    """Train until it rests, unless it does; the signal, if one came before."""
    record = work.record()
    if name in record.rests:
        return record.rests[name]
    try:
        rest = yield from _looked_at(work, exam, name, run, record.scanned.get(name, 0))
    except DivergedError as error:
        rest = Rest(0, error.problem, whole=True)
    finally:
        work.stop.running = False
        trim_heap()
    if isinstance(rest, Rest):
        work.made(_artifact(name, run))
        work.log.write("trained", name=name, step=rest.step, reason=rest.against, whole=rest.whole)
    return rest


def _looked_at(
    work: Work, exam: Exam, name: str, run: Run, scanned: int
) -> Generator[Told, None, Rest | int]:
    """Train, with a look where one is due that was not followed by a scan already."""
    ready, begin = prepared(run, resume=begun(run), progress=work.tell)
    _require_clean(work, ready)
    tokenizer = ready.checked.source.tokenizer()
    work.stop.reason = collapsed = ""
    for event in trained(ready, begin, work.stop):
        yield event
        if isinstance(event, Finished):
            return event.stopped or Rest(event.step, collapsed, event.step == ready.checked.steps)
        step = _step_of(event)
        looked = _look(work, exam, name, step, ready.model, tokenizer) if step > scanned else None
        if looked is not None:
            yield looked
            collapsed = looked.collapsed
            if collapsed or (looked.passed and work.plan.gates.early_stop):
                work.stop.reason = collapsed or "a look passed"
    raise AssertionError("a run ends with Finished")


def _step_of(event: Happened) -> int:
    """The step that the weights are of; a run that goes on is where its checkpoint was."""
    if isinstance(event, Started):
        return event.first - 1
    return event.step if isinstance(event, StepResult) else 0


def _look(
    work: Work, exam: Exam, name: str, step: int, model: Any, tokenizer: Any
) -> Looked | None:
    gates = work.plan.gates
    wanted = gates.early_stop or gates.collapse is not None
    if not wanted or step % gates.every_steps:
        return None
    try:
        with serving(model):
            results = ask_loaded(
                model, tokenizer, exam.questions, Kept(),
                lambda done, total: work.tell(f"looking at step {step}", done, total),
            )  # fmt: skip
        verdict = exam.judged(results)
        reason, found = exam.against(verdict), numbers(verdict)
        looked = Looked(name, step, not reason, reason, collapse(verdict, gates.collapse), found)
    except FormatError as error:  # logits that are not finite
        looked = Looked(name, step, False, error.problem, error.problem, {})
    except Stopped:
        return None
    work.log.write("look", **asdict(looked))
    return looked


def _require_clean(work: Work, ready: Ready) -> None:
    """Raise unless the attempt begins with the weights that all of them begin with."""
    start, run = work.record().artifacts[START], ready.checked.run
    same_dtype = storage_dtype(run.optim.master) == storage_dtype(work.plan.optim.master)
    if same_dtype and ready.base_digest != start.digest:
        raise ConfigError(
            f"{run.model.path} is not the model this experiment was begun with.",
            why="its weights have another digest",
            fix="put it back, or begin another experiment with another out",
        )


def _artifact(name: str, run: Run) -> Artifact:
    path = store.latest(checkpoint_folder(run))
    if path is None:
        return Artifact(name, str(run.out), START, "attempt", "")
    weights = str(path.relative_to(run.out))
    return Artifact(name, str(run.out), START, "attempt", digest_of_path(path), weights)
