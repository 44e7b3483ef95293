import pytest

from fourge.data.identity import LANGUAGES
from fourge.data.language import _SIMPLIFIED, _TRADITIONAL, family, language_of
from fourge.data.replay import replay_questions


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("What is the capital of France?", "en"),
        ("這個問題誰會回答？", "zh-TW"),
        ("这个问题谁会回答？", "zh-CN"),
        ("你好", "zh"),
        ("あなたは誰ですか", "ja"),
        ("너는 누구야", "ko"),
        ("¿Cuál es la capital de Francia?", "es"),
        ("Wie ist das Wetter und wer bist du?", "de"),
        ("Quelle est la capitale de la France ?", "fr"),
        ("用 Python 寫程式，請說明", "zh-TW"),
        ("這個問題說的是「の」這個字", "zh-TW"),
        ("42", "?"),
        ("", "?"),
    ],
)
def test_a_text_is_taken_for_its_language(text: str, language: str) -> None:
    assert language_of(text) == language


def test_no_character_is_of_both_scripts() -> None:
    assert not _TRADITIONAL & _SIMPLIFIED


@pytest.mark.parametrize("language", LANGUAGES)
def test_most_shipped_questions_are_in_the_language_they_are_filed_under(language: str) -> None:
    found = [language_of(question.prompt) for question in replay_questions([language])]
    known = [each for each in found if each != "?"]
    right = sum(family(each) == family(language) for each in known)
    assert right >= 0.9 * len(known) > 0.6 * len(found)
    other = {"zh-TW": "zh-CN", "zh-CN": "zh-TW"}.get(language)
    assert other not in found
