import pytest

from fourge.core.errors import ConfigError
from fourge.data.contrast import contrast_questions
from fourge.data.identity import LANGUAGES, Card

FACETS = {"who_am_i", "who_is_he", "about_old", "translate", "role_play", "quote"}


def test_every_language_has_every_facet_and_no_slot_is_left() -> None:
    questions = contrast_questions(Card("Al"), LANGUAGES)
    pairs = {(question.language, question.facet) for question in questions}
    assert pairs >= {(language, facet) for language in LANGUAGES for facet in FACETS}
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
