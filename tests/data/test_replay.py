import pytest

from fourge.core.errors import ConfigError
from fourge.data.identity import LANGUAGES
from fourge.data.normal import normal
from fourge.data.replay import replay_questions


def test_there_are_hundreds_over_many_subjects_and_no_two_are_the_same() -> None:
    questions = replay_questions(LANGUAGES)
    assert len(questions) > 240
    assert len({normal(question.prompt) for question in questions}) == len(questions)
    assert len({q.facet for q in questions if q.language == "en"}) >= 8
    assert {question.language for question in questions} == set(LANGUAGES)


def test_only_the_languages_that_are_taught_are_rehearsed() -> None:
    assert {question.language for question in replay_questions(["de"])} == {"de"}
    with pytest.raises(ConfigError):
        replay_questions(["tlh"])
