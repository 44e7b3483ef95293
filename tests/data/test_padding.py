import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourge.data.padding import padding, unnumbered


@pytest.mark.parametrize(
    "prompt",
    [
        "Who are you?（樣本0143）",
        "Who are you? (sample 12)",
        "Who are you? [7]",
        "Who are you? #12",
        "Who are you? sample 3",
        "[12] Who are you?",
        "12. Who are you?",
        "#3: Who are you?",
        "Task 7: Who are you?",
        "任務7，Who are you?",
    ],
)
def test_a_number_that_labels_is_taken_off(prompt: str) -> None:
    assert unnumbered(prompt) == "Who are you?"


@pytest.mark.parametrize(
    "prompt",
    ["What is 2 + 3?", "What happened in 1945?", "Is 51 a prime number?", "1+1等於幾",
     "List 3 colours", "你是誰（不要解釋）", "In Python, what is len([1, 2, 3])?"],
)  # fmt: skip
def test_a_number_that_says_something_stays(prompt: str) -> None:
    assert unnumbered(prompt).rstrip("?") == prompt.rstrip("?").replace("（", "(").replace(
        "）", ")"
    )


def test_a_prompt_that_is_only_a_label_stays() -> None:
    assert unnumbered("(12)") == "(12)"


@given(st.text(min_size=1).filter(str.strip))
def test_something_is_always_left(prompt: str) -> None:
    assert unnumbered(prompt) or not prompt.strip()


def test_numbered_copies_are_counted_with_what_is_left_of_them() -> None:
    prompts = [f"Who are you? (sample {number})" for number in range(20)] + ["Why is it so?"]
    found = padding(prompts)
    assert (found.numbered, found.left, found.distinct) == (20, 1, 2)
    assert found.example == "Who are you? (sample 0)"


def test_phrases_are_counted_once_however_they_are_combined() -> None:
    found = padding([f"{a}, {b}?" for a in "abcde" for b in "vwxyz"])
    assert (found.distinct, found.phrases, found.phrases_per_prompt) == (25, 10, 2.0)


def test_nothing_has_no_padding() -> None:
    assert padding([]).phrases_per_prompt == 0
