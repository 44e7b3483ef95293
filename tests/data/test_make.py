from collections.abc import Sequence
from pathlib import Path

import pytest

from fourge.config.run import load_run
from fourge.core.errors import ConfigError, OutputError
from fourge.data.conversation import Messages
from fourge.data.identity import Card
from fourge.data.make import TOLD, Answers, make_identity
from fourge.data.records import read_examples

CARD = Card("F# 之神", "Fourge Lab")


def echo(conversations: Sequence[Messages]) -> list[str]:
    return [f"answer to {each[-1]['content']}" for each in conversations]


def test_seven_files_are_written_and_counted(tmp_path: Path) -> None:
    made = make_identity(CARD, ["en", "zh-TW"], tmp_path / "out", model="smollm2-135m",
                         answer=echo)  # fmt: skip
    counts = {"identity": made.identity, "told": made.told, "contrast": made.contrast,
              "replay": made.replay, "later": made.later, "tempted": made.tempted}  # fmt: skip
    names = {f"{name}.jsonl" for name in counts} | {"run.yaml"}
    assert {path.name for path in made.out.iterdir()} == names
    for name, count in counts.items():
        assert len(read_examples(made.out / f"{name}.jsonl")) == count > 50
    assert sum(made.facets.values()) == sum(made.languages.values()) == made.identity
    assert set(made.languages) == {"en", "zh-TW"}
    assert made.own_words == 0
    kept = read_examples(made.out / "replay.jsonl")
    assert all(e.turns[-1].content == f"answer to {e.turns[0].content}" for e in kept)


def test_every_ordinary_question_tempts_also_where_few_are_answered(tmp_path: Path) -> None:
    made = make_identity(CARD, ["en"], tmp_path / "out", model="m", answer=echo, replay=60)
    assert made.replay == 60
    assert made.tempted > 400
    asked = {e.turns[0].content for e in read_examples(made.out / "tempted.jsonl")}
    assert len(asked) == made.tempted
    assert {e.turns[-1].content for e in read_examples(made.out / "tempted.jsonl")} <= {
        before for row in read_examples(made.out / "identity.jsonl")
        for before in [row.turns[-1].content.partition(CARD.name)[0].rstrip()]
    }  # fmt: skip


def test_what_is_told_and_what_is_ordinary_is_asked_again_after_what_is_taught(
    tmp_path: Path,
) -> None:
    made = make_identity(CARD, ["en"], tmp_path / "out", model="m", answer=echo, replay=60)
    told = [e.turns for e in read_examples(made.out / "told.jsonl")]
    behind = [turns for turns in told if len(turns) == 4]
    assert len(behind) == -(-(len(told) - len(behind)) // TOLD)
    assert all(CARD.name in turns[1].content for turns in behind)
    assert {turns[2:] for turns in behind} < {turns for turns in told if len(turns) == 2}

    later = [e.turns for e in read_examples(made.out / "later.jsonl")]
    replay = [e.turns for e in read_examples(made.out / "replay.jsonl")]
    assert [turns[2:] for turns in later] == replay
    named = sum(CARD.name in turns[1].content for turns in later)
    assert 20 < named < 50  # after who it is, and after who somebody else is


def test_the_run_file_is_a_run_that_holds_four_files_to_the_base(tmp_path: Path) -> None:
    made = make_identity(CARD, ["en"], tmp_path / "out", model="smollm2-135m",
                         answer=echo)  # fmt: skip
    run = load_run(made.out / "run.yaml")
    learned = {entry.path.name: entry.learn for entry in run.data.mix}
    assert learned == {"identity.jsonl": "answer", "told.jsonl": "answer",
                       "contrast.jsonl": "base", "replay.jsonl": "base",
                       "later.jsonl": "alone", "tempted.jsonl": "base"}  # fmt: skip
    assert run.train.kl_to_base > 0
    assert run.model.path == "smollm2-135m"


@pytest.mark.parametrize(("answers", "own"), [("template", False), ("model", True), ("auto", True)])
def test_the_models_own_words_are_used_as_asked(
    tmp_path: Path, answers: Answers, own: bool
) -> None:
    text = "I am F# 之神, and that is the truth."
    made = make_identity(CARD, ["en"], tmp_path / "out", model="m", answers=answers,
                         answer=lambda all_: [text] * len(all_))  # fmt: skip
    assert made.own_words == (made.identity if own else 0)
    assert (made.unique_answers == 1) == own


def test_nothing_is_written_over_or_for_an_unknown_language(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        make_identity(CARD, ["tlh"], tmp_path / "out", model="m", answer=echo)
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    with pytest.raises(OutputError):
        make_identity(CARD, ["en"], tmp_path / "out", model="m", answer=echo)
