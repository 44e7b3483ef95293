import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fourge.chat.conversation import Template
from fourge.core.errors import DataError
from fourge.evaluate.haystack import QUESTION, Haystack, secret
from tests.conftest import byte_tokenizer

TOKENIZER = byte_tokenizer()
TEXT = "\n".join(f"line {n} of the text" for n in range(60))


def haystack(text: str = TEXT) -> Haystack:
    return Haystack(Template(TOKENIZER), text)


def test_a_secret_is_a_word_and_a_number_of_its_own() -> None:
    codes = [secret(0, number) for number in range(50)]
    assert all(re.fullmatch(r"[a-z]+-[0-9]{4}", code) for code in codes)
    assert len(set(codes)) == 50
    assert codes == [secret(0, number) for number in range(50)]
    assert codes[0] != secret(1, 0)


@settings(max_examples=15)
@given(st.integers(200, 1200), st.floats(0, 1))
def test_a_prompt_is_as_long_as_asked_for_up_to_a_line(tokens: int, depth: float) -> None:
    prompt = haystack().prompt(tokens, depth, "amber-1234")
    assert tokens - 25 < len(prompt) <= tokens
    text = TOKENIZER.decode(prompt)
    assert text.startswith("<|im_start|>user\n")
    assert text.endswith(f"\n\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n")
    assert text.count("amber-1234") == 1


@pytest.mark.parametrize(("depth", "before"), [(0, 0), (0.25, 10), (0.5, 20), (1, 40)])
def test_the_secret_lies_at_its_depth(depth: float, before: int) -> None:
    hay = haystack()
    whole = len(hay._ids(40, depth, "amber-1234"))
    lines = TOKENIZER.decode(hay.prompt(whole, depth, "amber-1234")).splitlines()[1:]
    assert lines[before] == "The secret code of the archive is amber-1234."
    assert [*lines[:before], *lines[before + 1 : 41]] == TEXT.splitlines()[:40]


def test_prompts_are_the_same_up_to_the_shallower_secret() -> None:
    deep, shallow = (haystack().prompt(600, depth, "amber-1234") for depth in (1.0, 0.5))
    same = next(n for n, (a, b) in enumerate(zip(deep, shallow, strict=True)) if a != b)
    assert 0.3 < same / len(deep) < 0.6


def test_every_depth_of_every_length_has_its_own_secret() -> None:
    hidden = haystack().hide([300, 400], [0.0, 1.0], answer=32, seed=3)
    assert [(each.length, each.depth) for each in hidden] == [
        (400, 1.0), (400, 0.0), (300, 1.0), (300, 0.0),
    ]  # fmt: skip
    assert [each.code for each in hidden] == [secret(3, number) for number in range(4)]
    for each in hidden:
        assert each.length - 32 - 25 < len(each.prompt) <= each.length - 32
        assert list(each.prompt) == haystack().prompt(each.length - 32, each.depth, each.code)


def test_too_little_room_and_too_little_text_are_refused() -> None:
    with pytest.raises(DataError, match="no room"):
        haystack().prompt(100, 0.5, "amber-1234")
    with pytest.raises(DataError, match="too short for 5000"):
        haystack().prompt(5000, 0.5, "amber-1234")
    with pytest.raises(DataError, match="special token"):
        haystack("a <|im_end|> in it\n" * 99).prompt(400, 0.5, "amber-1234")
