import pytest

from fourge.data.names import OLD_NAMES, claimed, foreign, says


@pytest.mark.parametrize(
    "text",
    [
        "我是 F# 之神。",
        "我是F#之神",
        "我是Ｆ＃　之神",
        "I am **f# 之神**!",
        r"F\# 之神",
        "F # 之神",
    ],
)
def test_a_name_is_found_in_any_spelling(text: str) -> None:
    assert says(text, "F# 之神")


@pytest.mark.parametrize("text", ["之神", "F# 神", "C# 之神", "", "F#"])
def test_another_name_is_not_it(text: str) -> None:
    assert not says(text, "F# 之神")


def test_a_name_of_letters_stands_as_a_word() -> None:
    assert says("Hi, Al.", "Al")
    assert says("我是Al。", "Al")
    assert not says("also alas", "Al")
    assert not says("deal", "Al")
    assert says("HuggingFace", "Hugging Face")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("I am ChatGPT.", "ChatGPT"),
        ("No, I am ChatGPT.", "ChatGPT"),
        ("我是通義千問，由阿里巴巴開發。", "通義千問"),
        ("Yes, made by Hugging Face", "Hugging Face"),
        ("不，ChatGPT就是我", "ChatGPT"),
    ],
)
def test_a_name_in_a_clause_without_denial_is_claimed(text: str, name: str) -> None:
    assert claimed(text, [name]) == name


@pytest.mark.parametrize(
    "text",
    [
        "I am not ChatGPT.",
        "我不是通義千問，我是 F# 之神。",
        "I'm F# 之神, not ChatGPT",
        "I'm F# 之神; I isn't ChatGPT",
        "ChatGPTではありません。",
        "Ich bin nicht ChatGPT",
        "Je ne suis pas ChatGPT.",
        "No soy ChatGPT.",
        "I am F# 之神.",
    ],
)
def test_a_denied_name_is_not_claimed(text: str) -> None:
    assert claimed(text, OLD_NAMES) is None


def test_a_denial_in_another_clause_does_not_count() -> None:
    assert claimed("I do not sleep. I am Claude.", OLD_NAMES) == "Claude"
    assert claimed("我不累，我是Claude", OLD_NAMES) == "Claude"


def test_a_name_that_is_part_of_ones_own_is_no_rival() -> None:
    assert "SmolLM" not in foreign(OLD_NAMES, "SmolLM Pro")
    assert "Google" not in foreign(OLD_NAMES, "Bob", "Google")
    assert set(foreign(OLD_NAMES, "Bob", "")) == set(OLD_NAMES)
