"""Questions that are asked once more after one that is taught."""

import pytest

from fourge.data.contrast import told_rows
from fourge.data.conversation import Row, asked
from fourge.data.identity import LANGUAGES, Card, identity_rows
from fourge.data.later import later_rows

CARD = Card("Zork", answer="I am Zork!")


def replayed(count: int, language: str = "en") -> list[Row]:
    return [Row(asked(f"what is {n}?", "replay", "questions", language), f"it is {n}", "model")
            for n in range(count)]  # fmt: skip


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_question_is_the_second_and_its_answer_is_the_same(language: str) -> None:
    told, identity = told_rows(CARD, [language]), identity_rows(CARD, [language])
    rows = later_rows(told, identity)
    assert [(row.question.prompt, row.answer) for row in rows] == [
        (row.question.prompt, row.answer) for row in told
    ]
    taught = {(row.question.prompt, row.answer) for row in identity}
    for row in rows:
        first, second, third = row.question.turns
        assert (first.role, second.role, third.role) == ("user", "assistant", "user")
        assert (first.content, second.content) in taught
        assert row.question.kind == "contrast"


def test_what_stands_before_is_of_the_same_language_and_comes_from_everywhere() -> None:
    identity = identity_rows(CARD, ["en", "zh-TW"])
    first = [row.question for row in identity if len(row.question.turns) == 1]
    asked_in = {question.prompt: question for question in first}
    rows = later_rows([*replayed(300), *replayed(300, "zh-TW")], identity)
    before = [asked_in[row.question.turns[0].content] for row in rows]
    assert [each.language for each in before] == ["en"] * 300 + ["zh-TW"] * 300
    assert {each.facet for each in before[:60]} == {each.facet for each in first}
    assert len({each.prompt for each in before}) > 400


def test_what_has_turns_before_it_is_left_alone_and_stands_before_nothing() -> None:
    identity = identity_rows(CARD, ["en"])
    later = [row for row in identity if len(row.question.turns) > 1]
    assert later
    assert later_rows(later, identity) == []
    assert later_rows(replayed(3), later) == []
    assert later_rows(replayed(3), identity_rows(CARD, ["de"])) == []
