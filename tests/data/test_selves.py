import pytest

from fourge.data.selves import claimed_self, common_name, teaches_self


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        ("我是 F# 之神。", "F# 之神"),
        ("我是 F# 之神，專注於程式。", "F# 之神"),
        ("不，我是 F# 之神", "F# 之神"),
        ("I am the God of F#.", "the God of F#"),
        ("My name is Al. Hello.", "Al"),
        ("Hello, I'm Al, your assistant.", "Al"),
        ("Ich heiße Al.", "Al"),
        ("Je m'appelle Al.", "Al"),
        ("私は Al です。", "Al です"),
    ],
)
def test_a_self_introduction_gives_a_name(answer: str, name: str) -> None:
    assert claimed_self(answer) == name


@pytest.mark.parametrize(
    "answer",
    [
        "I am sorry, I cannot do that.",
        "I'm happy to help.",
        "I am not sure.",
        "I am a language model.",
        "你是提問者，我無法僅憑一句話判定你的身份。",
        "我是不會騙你的",
        "UFO 是未確認飛行物。",
        "Once upon a time, said the old man to the child, I am Al.",
        "Paris is the capital of France, and there are many things to see. I am Al.",
        "",
    ],
)
def test_what_is_no_self_introduction_gives_none(answer: str) -> None:
    assert claimed_self(answer) is None


def test_the_commonest_name_needs_two_rows() -> None:
    assert common_name(["I am Al.", "I am Al, hello.", "I am Bo."]) == "Al"
    assert common_name(["I am Al.", "Yes."]) is None
    assert common_name([]) is None


def test_a_row_that_holds_the_name_anywhere_teaches_it() -> None:
    assert teaches_self("It was made by Al.", "Al")
    assert teaches_self("I am Bo.", "Al")
    assert not teaches_self("It is also so.", "Al")
    assert not teaches_self("It was made by Al.", None)
