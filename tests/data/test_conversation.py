import json
from pathlib import Path

import pytest

from fourge.core.errors import OutputError
from fourge.data.conversation import Question, Row, answered, asked, with_answer, write_rows
from fourge.data.records import Turn, read_examples

QUESTION = Question((Turn("system", "s"), Turn("user", "誰?")), "identity", "direct", "zh-TW")


def test_a_written_row_reads_back_as_its_turns(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write_rows([Row(QUESTION, "我", "template")], path, overwrite=False)
    (example,) = read_examples(path)
    assert example.turns == (*QUESTION.turns, Turn("assistant", "我"))
    row = json.loads(path.read_text(encoding="utf-8"))
    assert (row["kind"], row["facet"], row["language"], row["by"]) == (
        "identity", "direct", "zh-TW", "template",
    )  # fmt: skip
    assert "誰" in path.read_text(encoding="utf-8")


def test_a_file_that_exists_stays(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write_rows([Row(QUESTION, "我", "template")], path, overwrite=False)
    with pytest.raises(OutputError):
        write_rows([], path, overwrite=False)
    write_rows([], path, overwrite=True)
    assert path.read_text() == ""


def test_a_model_answers_each_question_and_silence_is_left_out() -> None:
    questions = [asked(prompt, "replay", "x", "en") for prompt in ("one", "two", "three")]
    rows = answered(questions, lambda all_: [" 1 ", "  ", "3"])
    assert [(row.question.prompt, row.answer, row.by) for row in rows] == [
        ("one", "1", "model"), ("three", "3", "model"),
    ]  # fmt: skip


def test_a_model_that_loses_a_question_is_found_out() -> None:
    with pytest.raises(ValueError, match="zip"):
        answered([asked("one", "replay", "x", "en")], lambda all_: [])


def test_own_words_take_the_place_of_a_template() -> None:
    row = with_answer(Row(QUESTION, "old", "template"), "new")
    assert (row.question, row.answer, row.by) == (QUESTION, "new", "model")
