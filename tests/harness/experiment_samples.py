"""Whole experiments in seconds: a tiny model, a handful of probes, answers by rule."""

import re
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Literal

import pytest

from fourge.config.experiment import Experiment
from fourge.data.contrast import contrast_questions, told_rows
from fourge.data.replay import replay_questions
from fourge.evaluate import perplexity, probes, verdict
from fourge.evaluate.answers import Said
from fourge.evaluate.check import Questions
from fourge.evaluate.paired import Decision, Paired
from fourge.evaluate.probes import Probe
from fourge.evaluate.verdict import Results
from fourge.harness import attempt, experiment, scan
from fourge.harness.training import Stop
from fourge.harness.work import Told
from fourge.train.loop import StepResult

Quality = Literal["untaught", "good", "leaking", "broken"]
SETS = ("identity", "separation", "leak", "abilities", "degeneration")
PROBES = tuple(
    Probe(name, "en", "x", (("user", f"{name} {number}?"),), ("th",))
    for name in SETS
    for number in range(2)
)


def plan_of(folder: Path, base: Path, /, **sections: Any) -> Experiment:
    """Four steps, a look every two, one share beside the whole, two attempts."""
    tree = {
        "model": {"path": str(base)},
        "identity": {"name": "Ada", "languages": ["en"], "answers": "template", "max_tokens": 4},
        "mix": {"max_tokens": 64},
        "train": {"steps": 4, "batch": 1, "kl_top_k": 4, **sections.get("train", {})},
        "optim": {"lr": 1e-3},
        "guard": {"enabled": False},
        "gates": {"every_steps": 2, "quick": 1, **sections.get("gates", {})},
        "attempts": sections.get("attempts", [[], ["optim.lr=1e-4"]]),
        "scan": sections.get("scan", [0.5]),
        "out": str(folder / "out"),
    }
    return Experiment.model_validate(tree)


def choose_few(languages: Sequence[str], *, name: str, limit: int | None = None) -> Questions:
    """Two probes of each set, one of each in a look."""
    few = PROBES if limit is None else PROBES[::2]
    return Questions(few, tuple(perplexity.held_out(2 if limit is None else 1)), {})


def few_questions(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """Ask a handful, believe them, keep answers out of the user's cache, and make little data."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr(perplexity, "_CHARACTERS", 60)
    monkeypatch.setattr(probes, "MAX_TOKENS", dict.fromkeys(SETS, 4))
    monkeypatch.setattr(experiment, "choose", choose_few)
    monkeypatch.setattr(verdict, "enough_for", lambda share: 0)
    monkeypatch.setattr(verdict, "not_worse", _believed)
    monkeypatch.setattr(verdict, "_FEWEST_NUMBERS", 0)
    few: dict[str, Callable[..., Any]] = {
        "replay_questions": lambda languages, limit=None: replay_questions(languages, 4),
        "contrast_questions": lambda card, languages: contrast_questions(card, languages)[:4],
        "told_rows": lambda card, languages, wordings: told_rows(card, languages, wordings)[:4],
    }
    for name, made in few.items():
        monkeypatch.setattr(f"fourge.data.make.{name}", made)


def _believed(paired: Paired, margin: float) -> Decision:
    return "pass" if paired.difference > -margin else "fail"


def said_by(quality: Quality, questions: Questions) -> Results:
    """The answers of a model that learned its name, too much, or nothing."""
    texts = {"untaught": "Fine.", "good": "Fine.", "leaking": "Ada is fine.", "broken": ""}
    said = []
    for probe in questions.probes:
        text = texts[quality]
        if probe.set == "identity" and quality in ("good", "leaking"):
            text = "I am Ada."
        if probe.set == "abilities" and quality != "broken":
            text = "th"
        said.append(Said(text, 1, True))
    return Results(tuple(said), (2.0,) * len(questions.pieces))


def scripted(
    monkeypatch: pytest.MonkeyPatch, looks: Sequence[Quality], files: dict[str, Quality]
) -> None:
    """The looks in turn, the last for good; exports by name or, for short, without their step."""
    turn = count()

    def look(model: Any, tokenizer: Any, questions: Questions, *rest: Any) -> Results:
        return said_by(looks[min(next(turn), len(looks) - 1)], questions)

    def ask(path: str, questions: Questions, progress: Any) -> Results:
        name = Path(path).name
        short = re.sub(r"-step-\d+", "", name)
        return said_by(files.get(name, files.get(short, "untaught")), questions)

    monkeypatch.setattr(attempt, "ask_loaded", look)
    monkeypatch.setattr(scan, "ask", ask)
    monkeypatch.setattr(experiment, "ask", ask)


def happens(plan: Experiment, stop_at: int | None = None, **options: Any) -> list[Told]:
    """All that happens; asked to stop when a step is done."""
    stop, seen = Stop(), []
    for event in experiment.experiment(plan, stop=stop, **options):
        seen.append(event)
        if isinstance(event, StepResult) and event.step == stop_at:
            stop.signal, stop_at = 15, None
    return seen


def names(events: list[Told]) -> list[str]:
    """What kind of things happened, without the steps."""
    kinds = [type(event).__name__ for event in events]
    return [kind for kind in kinds if kind not in ("StepResult", "Saved", "Started")]
