import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourge.data.normal import normal


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Who are you?", "who are you"),
        ("你是誰？", "你是誰"),
        ("Ｗｈｏ　are you", "WHO ARE YOU!"),
        ("F# 之神", "f 之神"),
        ("  a_b ", "ab"),
    ],
)
def test_width_case_spaces_and_punctuation_make_no_difference(one: str, other: str) -> None:
    assert normal(one) == normal(other)


def test_words_make_a_difference() -> None:
    assert normal("who am i") != normal("who are you")


def test_a_text_of_signs_alone_is_not_the_empty_text() -> None:
    assert normal("?!") == "?!"


@given(st.text())
def test_normalising_twice_changes_nothing(text: str) -> None:
    once = normal(text)
    assert normal(once) == normal(normal(once))
