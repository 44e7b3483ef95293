"""The files that teach an identity: what is learned, what is told apart, what is kept.

| file             | rows                                     | how a run uses it               |
|------------------|------------------------------------------|---------------------------------|
| identity.jsonl   | who are you, and its relatives           | the answers are learned         |
| told.jsonl       | who am I, who is she, you are Newton     | the answers are learned         |
| contrast.jsonl   | who was Newton, translate, quotes        | held to the base (learn: base)  |
| replay.jsonl     | ordinary questions                       | held to the base (learn: base)  |
| later.jsonl      | the same, after one that is taught       | the last is held (learn: alone) |
| tempted.jsonl    | the same, answers begun as the new one   | held to the base (learn: base)  |
| run.yaml         | a run file that uses the six             | ``fourge train run.yaml``       |

The base model's top-k log-probabilities on the last four are not stored here: ``fourge train``
asks for them once, with the very template and tokens it trains on, and caches them under the
digest of weights and data.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml  # type: ignore[import-untyped]

from fourge.core.files import whole_folder
from fourge.data.contrast import contrast_questions, told_rows
from fourge.data.conversation import Answer, Row, answered, write_rows
from fourge.data.identity import Card, identity_rows, own_words
from fourge.data.later import later_rows
from fourge.data.openings import every_second, once_more
from fourge.data.replay import replay_questions
from fourge.data.tempted import tempted_rows

TOLD = 6  # of so many told questions, one is asked once more after who the assistant is
Answers = Literal["model", "template", "auto"]


@dataclass(frozen=True, slots=True)
class Made:
    """What was written."""

    out: Path
    identity: int
    told: int
    contrast: int
    replay: int
    later: int
    tempted: int
    unique_prompts: int  # of the identity rows
    unique_answers: int
    facets: dict[str, int]
    languages: dict[str, int]
    own_words: int  # identity rows in the model's own words


def make_identity(
    card: Card,
    languages: Sequence[str],
    out: Path,
    *,
    model: str,
    answer: Answer,
    answers: Answers = "auto",
    wordings: int | None = None,
    replay: int | None = None,
    seed: int = 0,
    overwrite: bool = False,
) -> Made:
    """Write the seven files into a new folder. ``answer`` is the base model.

    ``wordings`` is how many answers of a kind there are at most, ``replay`` how many ordinary
    questions the base model answers; all of them tempt.

    Raises:
        ConfigError: a language has no texts.
        OutputError: the folder exists.
    """
    identity = identity_rows(card, languages, seed, wordings)
    if answers != "template":
        identity = own_words(identity, card, answer, always=answers == "model")
    held = [*contrast_questions(card, languages), *replay_questions(languages, replay)]
    kept = answered(every_second(held), answer)
    everyday = every_second(replay_questions(languages))
    named, told = once_more(identity), once_more(told_rows(card, languages, wordings))
    replayed = [row for row in kept if row.question.kind == "replay"]
    parts = {
        "identity": named,
        "told": [*told, *later_rows(told[::TOLD], named)],
        "contrast": [row for row in kept if row.question.kind == "contrast"],
        "replay": replayed,
        "later": later_rows(replayed, [*named, *told]),
        "tempted": tempted_rows(everyday, identity, card.name),
    }
    with whole_folder(out, overwrite=overwrite) as folder:
        for name, rows in parts.items():
            write_rows(rows, folder / f"{name}.jsonl", overwrite=False)
        (folder / "run.yaml").write_text(run_file(model), encoding="utf-8")
    return _made(out, parts)


def run_file(model: str) -> str:
    """A run that learns the identity and is held to the base on everything else."""
    tree = {
        "model": {"path": model},
        "data": {
            "mix": [
                {"path": "identity.jsonl", "weight": 2},
                {"path": "told.jsonl", "weight": 1},
                {"path": "contrast.jsonl", "weight": 1, "learn": "base"},
                {"path": "replay.jsonl", "weight": 2, "learn": "base"},
                {"path": "later.jsonl", "weight": 1, "learn": "alone"},
                {"path": "tempted.jsonl", "weight": 1, "learn": "base"},
            ],
            "max_tokens": 256,
        },
        "train": {"epochs": 3, "batch": 8, "kl_to_base": 1.0, "kl_top_k": 1024},
        "optim": {"lr": 2e-5},
        "out": "run",
    }
    return str(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True))


def _made(out: Path, parts: dict[str, list[Row]]) -> Made:
    identity = parts["identity"]
    return Made(
        out=out,
        identity=len(identity),
        told=len(parts["told"]),
        contrast=len(parts["contrast"]),
        replay=len(parts["replay"]),
        later=len(parts["later"]),
        tempted=len(parts["tempted"]),
        unique_prompts=len({row.question.prompt for row in identity}),
        unique_answers=len({row.answer for row in identity}),
        facets=dict(Counter(row.question.facet for row in identity)),
        languages=dict(Counter(row.question.language for row in identity)),
        own_words=sum(row.by == "model" for row in identity),
    )
