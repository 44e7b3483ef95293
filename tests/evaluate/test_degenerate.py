import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourge.evaluate.degenerate import fault, repeats
from tests.evaluate.samples import probe, said


@pytest.mark.parametrize("text", ["", "  \n "])
def test_silence_is_a_fault(text: str) -> None:
    assert fault(probe(), said(text)) == "empty"


@pytest.mark.parametrize(
    "text",
    ["我是 F# " + "之神" * 12, "the cat the cat the cat the cat the cat", "F F F F F F F F F F",
     "I am. " * 6, "！！！你！！！你！！！你！！！你！！！你", "a b a c a b b c a " * 4],
)  # fmt: skip
def test_going_in_circles_is_a_fault(text: str) -> None:
    assert repeats(text)
    assert fault(probe(), said(text)) == "repeats"


@pytest.mark.parametrize(
    "text",
    ["The sky is blue because air scatters short waves more than long ones.", "哈哈哈哈",
     "no no no",
     "Title\n----------------------\nText", "| a | b |\n|---|---|---|---|---|---|\n| c | d |",
     "1, 2, 3, 4, 5, 6, 7, 8, 9, 10"],
)  # fmt: skip
def test_plain_speech_and_drawn_lines_do_not_repeat(text: str) -> None:
    assert not repeats(text)


@given(st.text(alphabet="abcdefgh ", min_size=4, max_size=12).filter(lambda t: len(t.strip()) > 3),
       st.integers(4, 8))  # fmt: skip
def test_any_piece_said_four_times_is_found(piece: str, times: int) -> None:
    assert repeats(piece * times)


def test_an_endless_answer_is_a_fault_only_where_a_short_one_is_asked_for() -> None:
    text = said("Once upon a time there was a king", stopped=False)
    assert fault(probe("degeneration"), text) == "endless"
    assert fault(probe("leak"), text) is None
    assert fault(probe("degeneration"), said("Yes.")) is None


def test_another_language_is_a_fault_if_there_is_enough_of_it() -> None:
    english = said("I am sorry, but I do not know what you mean by that.")
    assert fault(probe(language="zh-TW", prompt="你好"), english) == "wrong language"
    assert fault(probe(language="zh-TW", prompt="你好"), said("This is it.")) is None
    assert fault(probe(language="en"), english) is None
    chinese = said("天空是藍色的，因為空氣會散射波長比較短的光，這個現象叫做瑞利散射。")
    assert fault(probe(language="zh-CN", prompt="x"), chinese) is None
    assert fault(probe(language="en"), chinese) == "wrong language"
    assert fault(probe(language="zh-TW", facet="translation"), english) is None
