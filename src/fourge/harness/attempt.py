"""One attempt: train from the clean weights, and look at the model every so many steps.

A look passes: training stops there, before it forgets more. A look finds a collapse: the attempt
ends. Neither: training goes on to its end, and the scan decides. A loss or a weight that is not
finite ends the attempt too. Looks change no bit of the training, so an attempt that is killed and
goes on, looking again at the same steps, ends where it would have ended.
"""

from collections.abc import Generator
from dataclasses import asdict, dataclass
from typing import Any

from fourge.checkpoint import store
from fourge.config.run import Run
from fourge.core.content import digest_of_path
from fourge.core.errors import ConfigError, DivergedError, FormatError
from fourge.core.process import trim_heap
from fourge.evaluate.cache import Kept
from fourge.evaluate.check import ask_loaded
from fourge.harness.exam import Exam, against, collapse, numbers
from fourge.harness.record import Artifact
from fourge.harness.resuming import begun
from fourge.harness.setup import Ready, checkpoint_folder
from fourge.harness.training import Finished, Happened, Started, prepared, trained
from fourge.harness.work import START, Looked, Told, Work
from fourge.train.loop import StepResult, Stopped
from fourge.train.prepare import storage_dtype
from fourge.train.serving import serving


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt's training ended: asked to, with something against it, or neither."""

    against: str = ""
    stopped: int = 0


def train_attempt(work: Work, exam: Exam, name: str, run: Run) -> Generator[Told, None, Outcome]:
    """Train, unless that is done; what is there afterwards is an artifact."""
    known = work.record().trained
    if name in known:
        return Outcome(known[name])
    try:
        outcome = yield from _looked_at(work, exam, name, run)
    except DivergedError as error:
        outcome = Outcome(error.problem)
    finally:
        work.stop.running = False
        trim_heap()
    if outcome.stopped:
        return outcome
    work.made(_artifact(name, run))
    work.log.write("trained", name=name, reason=outcome.against)
    return outcome


def _looked_at(work: Work, exam: Exam, name: str, run: Run) -> Generator[Told, None, Outcome]:
    ready, begin = prepared(run, resume=begun(run), progress=work.tell)
    _require_clean(work, ready)
    tokenizer = ready.checked.source.tokenizer()
    work.stop.reason = ended = ""
    for event in trained(ready, begin, work.stop):
        yield event
        if isinstance(event, Finished) and event.stopped:
            return Outcome(stopped=event.stopped)
        looked = _look(work, exam, name, _step_of(event), ready.model, tokenizer)
        if looked is not None:
            yield looked
            ended = looked.collapsed
            if ended or (looked.passed and work.plan.gates.early_stop):
                work.stop.reason = ended or "a look passed"
    return Outcome(ended)


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
    if not wanted or step == 0 or step % gates.every_steps:
        return None
    try:
        with serving(model):
            results = ask_loaded(
                model, tokenizer, exam.questions, Kept(),
                lambda done, total: work.tell(f"looking at step {step}", done, total),
            )  # fmt: skip
        verdict = exam.judged(results)
        reason, found = against(verdict), numbers(verdict)
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
