"""The export once more, as somebody else would serve it: by plain transformers.

The gates were asked of the file through our own loader. Here the same file is loaded without a
line of ours; a sample of the probes must find nothing against it, and a few answers are shown
before and after. What is found goes into the record of the experiment.

The gates compare with the base in NVFP4, untrained: what training did. How far the file is from the
base as it came, rounding included, is measured on real text and shown.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from fourge.config.experiment import Experiment
from fourge.core.events import FILE, EventLog
from fourge.data.language import family
from fourge.data.shipped import lines_of, shipped
from fourge.evaluate.check import Progress, Questions, Server, ask, choose, narrowed
from fourge.evaluate.probes import Probe
from fourge.evaluate.score import Names
from fourge.evaluate.verdict import Gate
from fourge.harness.exam import Exam, numbers, rows, side_by_side
from fourge.harness.opening import id_of
from fourge.harness.work import BASE, EXPORT, START

SERVER: Server = "transformers"


@dataclass(frozen=True, slots=True)
class Shown:
    """One question, and the answers of base and tuned."""

    prompt: str
    base: str
    tuned: str


@dataclass(frozen=True, slots=True)
class Served:
    """What plain transformers makes of an export."""

    same: int  # answers that are ours, letter for letter
    asked: int
    against: str  # what speaks against it; nothing if nothing does
    gates: tuple[Gate, ...]
    shown: tuple[Shown, ...]
    losses: dict[str, float]  # nats per token of real text: start, base, export


def serve(plan: Experiment, progress: Progress) -> Served:
    """Ask the export of a finished experiment through plain transformers."""
    identity, folder = plan.identity, str(plan.out / EXPORT)
    whole = choose(identity.languages, name=identity.name)
    sample = choose(identity.languages, name=identity.name, limit=plan.gates.quick)
    few = Questions(_shown(identity.languages), (), {})
    every = replace(whole, probes=(*sample.probes, *few.probes))
    base, ours = ask(str(plan.out / BASE), every, progress), ask(folder, every, progress)
    asked = replace(every, pieces=sample.pieces)
    theirs = ask(folder, asked, progress, SERVER)
    exam = Exam(every, base, Names(identity.name, identity.maker), plan.gates.margin, whole)
    verdict = exam.part(sample).judged(narrowed(theirs, asked, sample))
    against = exam.against(verdict)
    told = side_by_side(exam.part(few), narrowed(theirs, asked, few))
    log = EventLog(plan.out / FILE, id_of(plan))
    log.write("answers", name=EXPORT, of=SERVER, rows=told)
    log.write("verdict", name=EXPORT, of=SERVER, passed=not against, reason=against,
              numbers=numbers(verdict), gates=rows(verdict.gates))  # fmt: skip
    start = ask(plan.model.path, replace(whole, probes=()), progress)
    return Served(
        same=sum(a.text == b.text for a, b in zip(ours.said, theirs.said, strict=True)),
        asked=len(every.probes),
        against=against,
        gates=verdict.gates,
        shown=tuple(Shown(row["prompt"], row["base"], row["tuned"]) for row in told),
        losses={
            name: fmean(results.losses)
            for name, results in {START: start, BASE: base, EXPORT: ours}.items()
        },
    )


def _shown(languages: Sequence[str]) -> tuple[Probe, ...]:
    """The questions to show, of the languages that are taught; English if there is none of them."""
    texts = shipped("fourge.harness", "shown.yaml")
    kinds = dict.fromkeys(family(language) for language in languages)
    chosen = [kind for kind in kinds if kind in texts] or ["en"]
    return tuple(
        Probe("separation", kind, "shown", (("user", prompt),))
        for kind in chosen
        for prompt in lines_of(texts[kind])
    )
