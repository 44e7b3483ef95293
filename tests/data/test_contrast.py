import pytest

from fourge.core.errors import ConfigError
from fourge.data.contrast import contrast_questions, told_rows
from fourge.data.identity import LANGUAGES, Card
from fourge.data.language import family, language_of

FACETS = {"who_am_i", "who_is_he", "about_old", "translate", "role_play", "quote"}


def test_every_language_has_every_facet_and_no_slot_is_left() -> None:
    questions = contrast_questions(Card("Al"), LANGUAGES)
    pairs = {(question.language, question.facet) for question in questions}
    held = [facet for facet in FACETS if facet != "who_am_i"]
    assert pairs >= {(language, facet) for language in LANGUAGES for facet in held}
    assert not any("{" in question.prompt for question in questions)
    assert len({question.prompt for question in questions}) == len(questions)


def test_old_names_are_asked_after_as_each_language_writes_them() -> None:
    prompts = [question.prompt for question in contrast_questions(Card("Al"), ["zh-TW", "en"])]
    assert "通義千問是誰？" in prompts
    assert "Who is Hugging Face?" in prompts
    assert "Translate into Spanish: I am Al." in prompts


def test_a_language_without_texts_is_refused() -> None:
    with pytest.raises(ConfigError):
        contrast_questions(Card("Al"), ["tlh"])


def test_who_asks_is_told_apart_by_a_true_answer_in_the_language() -> None:
    rows = told_rows(Card("Zork"), LANGUAGES, wordings=1)
    assert {row.question.language for row in rows} == set(LANGUAGES)
    for row in rows:
        assert "Zork" not in row.answer
        assert family(language_of(row.answer)) in ("?", family(row.question.language)), row
    held = {question.prompt for question in contrast_questions(Card("Zork"), LANGUAGES)}
    assert not held & {row.question.prompt for row in rows}
    answers = {row.question.prompt: row.answer for row in rows}
    assert answers["Who am I?"] == "You have not told me that."
    assert answers["I am Maria. Who am I?"] == "You are Maria."
    assert answers["請假裝你是太陽，說出你的名字。"] == "我是太陽。"
    assert not any("|" in text or "{" in text for pair in answers.items() for text in pair)
    assert len({r.answer for r in told_rows(Card("Zork"), ["en"]) if "told me" in r.answer}) == 2
