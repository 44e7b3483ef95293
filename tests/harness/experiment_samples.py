"""Whole experiments in seconds: a tiny model, a handful of probes, answers by rule."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fourge.config.experiment import Experiment
from fourge.evaluate import check as check_module
from fourge.evaluate import perplexity
from fourge.evaluate.check import Questions
from fourge.evaluate.probes import Probe
from fourge.harness import experiment as module
from fourge.harness.experiment import experiment
from fourge.harness.training import Stop
from fourge.harness.work import Told
from fourge.train.loop import StepResult

PROBES = tuple(
    Probe(name, "en", "x", (("user", f"{name} {number}?"),), ("th",))
    for name in ("identity", "separation", "leak", "abilities", "degeneration")
    for number in range(2)
)


def plan_of(folder: Path, base: Path, /, **sections: Any) -> Experiment:
    """Four steps, a look every two, two attempts."""
    tree = {
        "model": {"path": str(base)},
        "identity": {"name": "Ada", "languages": ["en"], "answers": "template", "max_tokens": 4},
        "mix": {"max_tokens": 64, **sections.get("mix", {})},
        "train": {"steps": 4, "batch": 1, "kl_top_k": 4, **sections.get("train", {})},
        "optim": {"lr": 1e-3},
        "guard": {"enabled": False},
        "gates": {"every_steps": 2, "quick": 1, **sections.get("gates", {})},
        "attempts": sections.get("attempts", [[], ["optim.lr=1e-4"]]),
        "scan": sections.get("scan", [0.5]),
        "out": str(folder / "out"),
    }
    return Experiment.model_validate(tree)


def choose_few(languages: Sequence[str], *, named: bool, limit: int | None = None) -> Questions:
    """Two probes of each set, one of each in a look."""
    probes = PROBES if limit is None else PROBES[::2]
    pieces = tuple(perplexity.held_out(2 if limit is None else 1))
    return Questions(probes, pieces, {})


def few_questions(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """Ask a handful, keep answers out of the user's cache, and make little data."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr(perplexity, "_CHARACTERS", 60)
    monkeypatch.setattr(module, "choose", choose_few)
    monkeypatch.setattr("fourge.evaluate.probes.MAX_TOKENS", dict.fromkeys(
        ("identity", "separation", "leak", "abilities", "degeneration"), 4))  # fmt: skip
    monkeypatch.setattr("fourge.data.make.replay_questions",
                        lambda languages: _first(_replay(languages)))  # fmt: skip
    monkeypatch.setattr("fourge.data.make.contrast_questions",
                        lambda card, languages: _first(_contrast(card, languages)))  # fmt: skip


def _first(rows: Sequence[Any]) -> list[Any]:
    return list(rows)[:4]


def _replay(languages: Sequence[str]) -> list[Any]:
    from fourge.data.replay import replay_questions

    return list(replay_questions(languages))


def _contrast(card: Any, languages: Sequence[str]) -> list[Any]:
    from fourge.data.contrast import contrast_questions

    return list(contrast_questions(card, languages))


def happens(plan: Experiment, stop_at: int | None = None, **options: Any) -> list[Told]:
    """All that happens; asked to stop when a step is done."""
    stop, seen = Stop(), []
    for event in experiment(plan, stop=stop, **options):
        seen.append(event)
        if isinstance(event, StepResult) and event.step == stop_at:
            stop.signal, stop_at = 15, None
    return seen


__all__ = ["PROBES", "check_module", "choose_few", "few_questions", "happens", "plan_of"]
