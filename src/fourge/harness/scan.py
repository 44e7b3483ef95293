"""The smallest move that still passes: models between base and tuned, exported and judged.

Shares of the way ascend, the whole way last. Each is mixed tensor by tensor, quantised anew,
written as any export, and loaded from that file as anybody would load it: what is judged is what
would be shipped. A look comes first, since it is cheap; the full gates decide. What does not pass
goes into the trash with its numbers.
"""

from collections.abc import Generator
from pathlib import Path

from fourge.checkpoint.source import open_any
from fourge.config.run import Run
from fourge.core.content import digest_of_path
from fourge.core.errors import FormatError
from fourge.evaluate.check import ask
from fourge.evaluate.verdict import Gate
from fourge.harness.devlog import ALL_PASS
from fourge.harness.exam import Exam, not_passed, numbers, rows, side_by_side
from fourge.harness.record import Artifact, Found
from fourge.harness.work import CANDIDATES, EXPORT, Judged, Told, Work, note_of
from fourge.model.between import between
from fourge.model.build import untied
from fourge.model.export import export, outgoing_from_source
from fourge.model.source import Source, open_source

TARGET = "compressed-tensors"


def scan(
    work: Work, full: Exam, quick: Exam, name: str, step: int, run: Run
) -> Generator[Told, None, Path | None]:
    """The export that passes, in its place; None if there is none at this step."""
    for share in (*work.plan.scan, 1.0):
        candidate = f"{name}-step-{step}-share-{share:g}"
        if candidate in work.record().aside:
            continue
        path = _exported(work, candidate, name, run, share)
        found = yield from _found(work, candidate, path, "look", quick)
        if found.passed:
            found = yield from _found(work, candidate, path, "gates", full)
        if found.passed:
            target = work.out / EXPORT
            work.move(candidate, path, target, reason=ALL_PASS)
            return target
        note = note_of(candidate, found.reason, found.numbers)
        yield work.put_aside(candidate, path, found.reason, note)
    return None


def write_export(source: Source, run: Run, path: Path) -> None:
    """A source in NVFP4, as other tools read it."""
    outgoing = outgoing_from_source(source, TARGET, keep=run.model.keep_bf16)
    export(outgoing, path, TARGET)


def _exported(work: Work, candidate: str, name: str, run: Run, share: float) -> Path:
    path = work.out / CANDIDATES / candidate
    if not path.exists():
        work.tell(f"exporting {candidate}", 0, 1)
        base = untied(open_source(run.model.path))
        write_export(between(base, open_any(run.out).source, share), run, path)
    if candidate not in work.record().artifacts:
        work.made(Artifact(candidate, str(path), name, "candidate", digest_of_path(path)))
    return path


def _found(
    work: Work, candidate: str, path: Path, of: str, exam: Exam
) -> Generator[Told, None, Found]:
    """What is found about a candidate, asked once."""
    known = work.record().found.get((candidate, of))
    if known is not None:
        return known
    gates: tuple[Gate, ...] = ()
    try:
        results = ask(str(path), exam.questions, work.tell)
        verdict = exam.judged(results)
        reason = exam.against(verdict) if of == "look" else not_passed(verdict)
        gates = verdict.gates
        found = Found(not reason, reason, numbers(verdict))
        work.log.write("answers", name=candidate, of=of, rows=side_by_side(exam, results))
    except FormatError as error:  # weights or logits that are not finite
        found = Found(False, error.problem, {})
    work.log.write("verdict", name=candidate, of=of, passed=found.passed, reason=found.reason,
                   numbers=found.numbers, gates=rows(gates))  # fmt: skip
    yield Judged(candidate, of, found.passed, found.reason, gates)
    return found
