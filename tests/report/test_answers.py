"""Answers side by side."""

import re
import time

from hypothesis import given
from hypothesis import strategies as st

from fourge.report.answers import SHOWN, answers, marked
from tests.report.example import event
from tests.report.test_markup import read

TEXT = st.text(st.sampled_from("我是誰 ab<>&'\n"), max_size=40)


@given(TEXT, TEXT)
def test_both_texts_are_whole_and_equal_ones_have_no_mark(base: str, tuned: str) -> None:
    left, right = marked(base, tuned)
    assert (read(left).text, read(right).text) == (base, tuned)
    assert set(read(left).tags) <= {"del"}
    assert set(read(right).tags) <= {"ins"}
    assert ("<" in left + right) == (base != tuned)


def test_a_word_is_the_unit_in_english_and_a_character_in_chinese() -> None:
    assert marked("I can go", "I cannot go")[1] == "I <ins>cannot</ins> go"
    assert marked("我是神", "我是人")[1] == "我是<ins>人</ins>"


def test_an_answer_that_repeats_itself_is_whole_too_and_takes_no_time() -> None:
    base, tuned = "a " * 5000, "b " * 5000
    start = time.process_time()
    assert [read(side).text for side in marked(base, tuned)] == [base, tuned]
    assert time.process_time() - start < 2


def test_what_changed_comes_first_and_many_are_folded() -> None:
    rows = [{"prompt": f"p{at}", "base": "x", "tuned": "x"} for at in range(SHOWN)]
    rows.append({"prompt": "changed", "base": "x", "tuned": "y"})
    text = answers(event("answers", rows=rows), "a")
    assert text.index("changed") < text.index("p0")
    assert "1 more" in text
    assert len(re.findall("<tr>", text)) == SHOWN + 1 + 2


def test_an_event_of_one_answer_is_one_row() -> None:
    text = answers(event("answers", prompt="你好", base="嗨", tuned=None, stage="B"), "a")
    assert "你好" in text
    assert "<del>嗨</del>" in text
    assert "Answers: B" in text


def test_rows_that_are_none_are_passed_over() -> None:
    assert read(answers(event("answers", rows=[3, None]), "a")).tags.count("tr") == 1
    assert read(answers(event("answers", rows="x"), "a")).tags.count("tr") == 1
