"""A whole experiment: data, base, attempts with fallback, a scan, and gates on the exported file.

Under ``out`` it leaves

    experiment.yaml     every setting, as resolved
    events.jsonl        the record: append-only; all else that is said is read from it
    data/               what is taught, told apart and kept
    base/               the clean weights in NVFP4, untrained: what the gates compare with
    attempts/01, ...    a training run each
    candidates/         exports that are being judged
    export/             the one that passed every gate
    trash/              what did not, each with a note.md; nothing is deleted or written over
    devlog.md, artifacts.md   the record, for people

Every stage first looks whether its result is recorded and on disk, so that an experiment goes on
where it was stopped, by whatever. Answers are cached by weights and item, exports appear whole,
training saves as it goes: what a Ctrl-C costs is the batch of answers in flight.
"""

from collections.abc import Generator, Iterator, Sequence
from functools import partial
from typing import Any

from fourge.config.experiment import Experiment
from fourge.config.run import Run
from fourge.core.content import digest_of_path
from fourge.core.events import FILE, EventLog, read_events
from fourge.core.process import trim_heap
from fourge.data.conversation import Answer
from fourge.data.identity import Card, require_languages
from fourge.data.make import make_identity
from fourge.evaluate.answers import answering
from fourge.evaluate.cache import Kept, cache_folder, model_key, remembered
from fourge.evaluate.check import ask, choose
from fourge.evaluate.score import Names
from fourge.harness.attempt import train_attempt
from fourge.harness.devlog import NONE_PASSES, write_devlog
from fourge.harness.exam import Exam
from fourge.harness.opening import begin, id_of, refuse_foreign, require_same
from fourge.harness.record import Artifact, Rest, carry_out
from fourge.harness.scan import scan, write_export
from fourge.harness.setup import Progress
from fourge.harness.training import Stop, alone
from fourge.harness.work import (
    BASE,
    DATA,
    EXPORT,
    START,
    AttemptBegun,
    BaseScored,
    Ended,
    StageDone,
    Told,
    Work,
    note_of,
    telling,
)
from fourge.model.build import load_model
from fourge.model.digest import digest_of_weights
from fourge.model.source import open_source
from fourge.model.swap import choose_device, training_dtype
from fourge.train.prepare import storage_dtype


def experiment(
    plan: Experiment,
    *,
    command: Sequence[str] = (),
    stop: Stop | None = None,
    progress: Progress | None = None,
    language: str = "en",
) -> Iterator[Told]:
    """Run it, or go on with it, yielding what happens; ``Ended`` is the last.

    Raises:
        FourgeError: as the user's mistakes are.
    """
    stop = stop or Stop()
    card = Card(plan.identity.name, plan.identity.maker, plan.identity.answer)
    require_languages(plan.identity.languages)
    refuse_foreign(plan)
    with alone(plan.out):
        work = Work(plan, EventLog(plan.out / FILE, id_of(plan)), stop, telling(stop, progress))
        require_same(work)
        begin(work, command)
        try:
            ended = yield from _stages(work, card)
        finally:
            write_devlog(plan.out, language)
        yield ended


def _stages(work: Work, card: Card) -> Generator[Told, None, Ended]:
    for move in work.record().moves:
        carry_out(move)
    if (work.out / EXPORT).exists():
        return _ended(work, Ended(work.out / EXPORT))
    yield _data(work, card)
    full = yield from _base(work)
    identity, limit = work.plan.identity, work.plan.gates.quick
    quick = full.part(choose(identity.languages, name=identity.name, limit=limit))
    for number in range(len(work.plan.attempts)):
        ended = yield from _attempt(work, full, quick, number)
        if ended.passed or ended.stopped:
            return _ended(work, ended)
    return _ended(work, Ended(None))


def _attempt(work: Work, full: Exam, quick: Exam, number: int) -> Generator[Told, None, Ended]:
    """One attempt, unless it was made; what fails is put aside."""
    name, run = f"{number + 1:02d}", work.plan.run(number)
    if name in work.record().aside:
        return Ended(None)
    settings = work.plan.attempts[number]
    work.log.write("attempt", name=name, settings=list(settings), config=run.digest())
    yield AttemptBegun(name, len(work.plan.attempts), settings)
    ended = yield from _taught(work, full, quick, name, run)
    if isinstance(ended, Ended):
        return ended
    note = note_of(name, ended, _last_numbers(work, name))
    yield work.put_aside(name, run.out, ended, note)
    return Ended(None)


def _taught(
    work: Work, full: Exam, quick: Exam, name: str, run: Run
) -> Generator[Told, None, Ended | str]:
    """Train and scan in turn until something passes; or why nothing does."""
    while True:
        rest = yield from train_attempt(work, quick, name, run)
        if not isinstance(rest, Rest):
            return Ended(None, rest)
        if rest.against:
            return rest.against
        export = yield from scan(work, full, quick, name, rest.step, run)
        if export is not None:
            return Ended(export)
        if rest.whole:
            return NONE_PASSES
        work.log.write("went on", name=name, step=rest.step)


def _data(work: Work, card: Card) -> StageDone:
    """The five files, made by the base model; its weights are the start of everything."""
    path, plan = work.out / DATA, work.plan
    if work.kept(DATA, path):
        return StageDone(DATA, path, again=True)
    source = open_source(plan.model.path)
    device, dtype = choose_device(plan.model.device), storage_dtype(plan.optim.master)
    base = load_model(source, dtype=dtype, device=device, backend=plan.model.backend)
    work.made(Artifact(START, plan.model.path, "", START, digest_of_weights(base)))
    if not path.exists():
        answer = _answering(work, base.to(training_dtype("auto", device)), source.tokenizer())
        make_identity(
            card, plan.identity.languages, path, model=plan.model.path, answer=answer,
            answers=plan.identity.answers, wordings=plan.identity.wordings,
            replay=plan.identity.replay, seed=plan.train.seed,
        )  # fmt: skip
    del base
    trim_heap()
    work.made(Artifact(DATA, str(path), START, DATA, digest_of_path(path)))
    return StageDone(DATA, path, again=False)


def _answering(work: Work, base: Any, tokenizer: Any) -> Answer:
    """The base as a function, whose answers are kept as they come."""
    limit, kept = work.plan.identity.max_tokens, Kept(cache_folder(), model_key(base, tokenizer))
    told = partial(work.tell, "asking the base model")
    return remembered(answering(base, tokenizer, limit), kept, limit, told)


def _base(work: Work) -> Generator[Told, None, Exam]:
    """The base as it would be served, and its answers to everything."""
    path, plan = work.out / BASE, work.plan
    again = work.kept(BASE, path)
    if not again:
        if not path.exists():
            work.tell("exporting the base", 0, 1)
            write_export(open_source(plan.model.path), plan.run(0), path)
        work.made(Artifact(BASE, str(path), START, BASE, digest_of_path(path)))
    questions = choose(plan.identity.languages, name=plan.identity.name)
    names = Names(plan.identity.name, plan.identity.maker)
    answers = ask(str(path), questions, work.tell)
    yield StageDone(BASE, path, again)
    exam = Exam(questions, answers, names, plan.gates.margin)
    yield BaseScored(exam.judged(answers).gates)
    return exam


def _last_numbers(work: Work, name: str) -> dict[str, list[Any]]:
    """What was measured last of an attempt: at a look, or of a candidate made from it."""
    last: dict[str, list[Any]] = {}
    for event in read_events(work.log.path):
        about = event["kind"] in ("look", "verdict") and event["name"].split("-")[0] == name
        last = event["numbers"] if about else last
    return last


def _ended(work: Work, ended: Ended) -> Ended:
    work.log.write("ended", passed=ended.passed, stopped=ended.stopped)
    return ended
