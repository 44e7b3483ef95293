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


def test_some_of_them_are_of_every_language_and_of_most_subjects_alike() -> None:
    every = replay_questions(["zh-TW", "en"])
    some = replay_questions(["zh-TW", "en"], 200)
    assert len(some) == len(set(some)) == 200
    assert set(some) <= set(every)
    for language in ("zh-TW", "en"):
        share = sum(q.language == language for q in every) / len(every)
        assert abs(sum(q.language == language for q in some) - 200 * share) <= 1
    assert len({q.facet for q in some}) > 30
    assert replay_questions(["de"], 10_000) == replay_questions(["de"])
