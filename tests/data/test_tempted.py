"""Ordinary questions whose answers begin as the new one does."""

from fourge.data.conversation import Question, Row, asked
from fourge.data.tempted import MOST, tempted_rows


def taught(answers: list[str], language: str = "en") -> list[Row]:
    return [Row(asked(f"who? {n}", "identity", "direct", language), answer, "template")
            for n, answer in enumerate(answers)]  # fmt: skip


def questions(count: int, language: str = "en") -> list[Question]:
    return [asked(f"what is {n}?", "replay", "questions", language) for n in range(count)]


def begun(answers: list[str], count: int = 6) -> list[str]:
    return [row.answer for row in tempted_rows(questions(count), taught(answers), "Ada")]


def test_an_answer_is_what_stands_before_the_name() -> None:
    (row,) = tempted_rows(questions(1), taught(["No, I am Ada, of Ada House."]), "Ada")
    assert row.answer == "No, I am"
    assert row.question.prompt == "what is 0?"
    assert row.question.kind == "tempted"
    assert row.question.facet == "questions"


def test_what_half_of_them_begin_with_is_dealt_twice_as_often() -> None:
    usual, rare = "I am Ada.", "No, I am Ada."
    assert begun([usual, usual, rare]) == ["I am", "I am", "No, I am"] * 2
    assert begun([usual, rare, "Call me Ada."]) == ["I am", "No, I am", "Call me"] * 2


def test_only_the_commonest_beginnings_are_used() -> None:
    many = [f"Number {n}: Ada." for n in range(20)]
    found = begun([*many, "I am Ada.", "I am Ada."], 20)
    assert found[0] == "I am"
    assert len(set(found)) == MOST


def test_answers_without_the_name_or_with_nothing_before_it_tempt_nobody() -> None:
    assert begun(["Ada.", "That is not known."]) == []
    assert begun(["Ada.", "I am Ada."], 2) == ["I am", "I am"]


def test_every_language_has_its_own_words() -> None:
    identity = [*taught(["I am Ada."]), *taught(["我是 Ada。"], "zh-TW")]
    asked_in = [*questions(1), *questions(2, "zh-TW"), *questions(1, "fr")]
    rows = tempted_rows(asked_in, identity, "Ada")
    assert [(row.question.language, row.answer) for row in rows] == [
        ("en", "I am"), ("zh-TW", "我是"), ("zh-TW", "我是"),
    ]  # fmt: skip
