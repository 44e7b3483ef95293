import re

from fourge.data.shipped import any_of, lines_of, parts_of, prompts_of, shipped, words


def test_a_block_is_one_text_a_line() -> None:
    assert lines_of("one\n\n  two # not a comment: {x}\n") == ["one", "two # not a comment: {x}"]


def test_a_line_is_parted() -> None:
    assert parts_of("a || b | c || d") == ["a", "b | c", "d"]
    assert parts_of("a | b", "|") == ["a", "b"]


def test_a_group_is_prompts_or_a_form_and_things() -> None:
    assert prompts_of({"prompts": "a?\nb?\n"}) == ["a?", "b?"]
    assert prompts_of({"form": "What is {}?", "things": "x | y"}) == ["What is x?", "What is y?"]
    several = {"form": "What is {}?\nWhy {}?\n", "things": "x | y"}
    assert prompts_of(several) == ["What is x?", "What is y?", "Why x?", "Why y?"]


def test_a_longer_word_is_tried_before_its_beginning() -> None:
    found = re.search(any_of("old_names"), "SmolLM2")
    assert found
    assert found[0] == "SmolLM2"
    assert "ChatGPT" in words("old_names")


def test_files_are_read_from_the_package() -> None:
    assert shipped("fourge.data", "texts/words.yaml")["common"]["en"].startswith("the |")
