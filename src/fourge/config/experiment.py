"""The experiment file: who the model is to be, how to teach it, and what to try in turn.

    model: {path: smollm2-135m}
    identity: {name: Ada, maker: Our Lab}
    train: {epochs: 3}
    attempts: [[optim.lr=2e-5], [optim.lr=1e-5, train.kl_budget=0.02]]
    out: experiments/ada

``train``, ``optim``, ``memory`` and ``guard`` are those of a run file, and hold for every attempt;
an attempt is a list of ``name=value`` settings on top of them. ``mix`` says how often the six
files of data are drawn from. As many attempts are made as are listed, at most, each from the
clean weights of ``model``.

What can be switched off: ``train.kl_to_base: 0`` (rows are learned as plain answers),
``train.kl_budget: null``, ``gates.early_stop: false``, ``gates.collapse: null``, ``scan: []``.

This is read before torch is loaded.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from fourge.config.reading import load_settings, refuse_broken
from fourge.config.run import Recorded, Run
from fourge.config.settings import (
    Count,
    GuardSettings,
    Learn,
    MemorySettings,
    ModelSettings,
    NotNegative,
    OptimSettings,
    PathHere,
    Positive,
    Share,
    TrainSettings,
)
from fourge.config.strict import Many, Mistake, Number, Strict, Text, explain
from fourge.config.yaml_text import apply

ATTEMPTS, DATA = "attempts", "data"
FILES: dict[str, Learn] = {
    "identity": "answer", "told": "answer", "contrast": "base", "replay": "base",
    "later": "alone", "tempted": "base",
}  # fmt: skip
_PER_ATTEMPT = ("train", "optim", "mix")


class IdentitySettings(Strict):
    name: Text
    maker: str = ""
    answer: str = ""  # to "who are you"; templates without one
    languages: Annotated[Many[Text], Field(min_length=1)] = ("zh-TW", "zh-CN", "en")
    answers: Literal["model", "template", "auto"] = "auto"
    wordings: Count | None = None  # of each kind of answer from a template; null: all there are
    replay: Count | None = None  # ordinary questions at most; null: all there are
    max_tokens: Count = 48  # of the base model's own answers


class MixSettings(Strict):
    identity: Positive = 2.0  # learned, as is the next; the others are held to the base model
    told: NotNegative = 1.0
    contrast: NotNegative = 1.0
    replay: NotNegative = 2.0
    later: NotNegative = 1.0
    tempted: NotNegative = 1.0
    max_tokens: Annotated[int, Field(ge=8)] = 256  # of a row


class TeachSettings(TrainSettings):
    kl_to_base: NotNegative = 1.0
    kl_top_k: Count = 1024  # with few, a rare token can take all of the rest unseen
    kl_teacher: Literal["dense", "nvfp4"] = "nvfp4"  # holds against it what is taught alone


class GateSettings(Strict):
    every_steps: Count = 25  # between looks at the model that is being trained
    quick: Count = 24  # items of each set in a look
    margin: Annotated[Number, Field(gt=0, le=0.5)] = 0.05
    early_stop: bool = True  # at the first look that nothing speaks against
    collapse: Share | None = 0.25  # of answers newly broken or leaking: the attempt ends


def _ascending(shares: tuple[float, ...]) -> tuple[float, ...]:
    if list(shares) != sorted(set(shares)) or any(not 0 < share < 1 for share in shares):
        raise ValueError("the shares of the scan must ascend, between 0 and 1")
    return shares


class Experiment(Recorded):
    """Every setting of one experiment, checked one by one and, for each attempt, together."""

    model: ModelSettings
    identity: IdentitySettings
    mix: MixSettings = MixSettings()
    train: TeachSettings
    optim: OptimSettings = OptimSettings()
    memory: MemorySettings = MemorySettings()
    guard: GuardSettings = GuardSettings()
    attempts: Annotated[Many[Many[Text]], Field(min_length=1)] = ((),)
    gates: GateSettings = GateSettings()
    scan: Annotated[Many[Number], AfterValidator(_ascending)] = (0.4, 0.6, 0.8)  # 1 comes last
    out: PathHere

    @model_validator(mode="after")
    def _every_attempt_is_a_run(self) -> Self:
        mistakes = list(_served_in_nvfp4(self))
        for number in range(len(self.attempts)):
            mistakes += self._attempt(number)[1]
        refuse_broken(list(dict.fromkeys(mistakes)))
        return self

    def run(self, number: int) -> Run:
        """The run of an attempt, counted from 0."""
        run, _ = self._attempt(number)
        assert run is not None, "every attempt was checked when the file was read"
        return run

    def _attempt(self, number: int) -> tuple[Run | None, list[Mistake]]:
        """The run of an attempt, or what is wrong with it."""
        settings, place = self.attempts[number], (ATTEMPTS, number)
        sections = self.model_dump(mode="json", include=set(_PER_ATTEMPT))
        tree, bad = apply(sections, settings)
        mistakes = [Mistake(place, f"{mistake}") for mistake in bad]
        mistakes += [Mistake(place, f"{each}: {_OTHER}") for each in _elsewhere(settings)]
        if mistakes:
            return None, mistakes
        try:
            chosen = _PerAttempt.model_validate(tree)
            return Run.model_validate(self._tree(chosen, number)), []
        except ValidationError as error:
            kind = Run if error.title == Run.__name__ else _PerAttempt
            where = place if settings else ()
            return None, [Mistake((*where, *m.at), m.says) for m in explain(kind, error)]

    def _tree(self, chosen: "_PerAttempt", number: int) -> dict[str, Any]:
        shared = self.model_dump(mode="json", include={"model", "memory", "guard"})
        return {
            **shared,
            "data": {
                "mix": list(_entries(chosen, self.out / DATA)),
                "max_tokens": chosen.mix.max_tokens,
            },
            "train": chosen.train.model_dump(mode="json"),
            "optim": chosen.optim.model_dump(mode="json"),
            "out": str(self.out / ATTEMPTS / f"{number + 1:02d}"),
        }


class _PerAttempt(Strict):
    train: TeachSettings
    optim: OptimSettings
    mix: MixSettings


_OTHER = f"an attempt can change {', '.join(_PER_ATTEMPT[:-1])} and {_PER_ATTEMPT[-1]} only"


def _elsewhere(settings: Sequence[str]) -> list[str]:
    return [each for each in settings if each.split(".")[0].strip() not in _PER_ATTEMPT]


def _entries(chosen: _PerAttempt, folder: Path) -> Iterator[dict[str, Any]]:
    """The files that are drawn from; held to the base unless that counts nothing.

    What tempts is no answer: where nothing is held, it is left out.
    """
    holds = chosen.train.kl_to_base > 0
    for name, learn in FILES.items():
        weight = getattr(chosen.mix, name)
        if weight and (holds or name != "tempted"):
            learned = learn if holds else "answer"
            yield {"path": str(folder / f"{name}.jsonl"), "weight": weight, "learn": learned}


def _served_in_nvfp4(experiment: Experiment) -> Iterator[Mistake]:
    scheme = experiment.model.scheme
    if scheme != "w4a16":
        yield Mistake(("model", "scheme"), f"is {scheme!r}; an experiment exports w4a16")


def load_experiment(path: Path, settings: Sequence[str] = ()) -> Experiment:
    """Read an experiment file, with ``name=value`` settings on top of it.

    Raises:
        ConfigError: it cannot be read, or is not valid; every mistake has a line.
    """
    return load_settings(
        Experiment, path, settings, called="experiment file",
        begin="model:, identity:, train: and out:",
    )  # fmt: skip
