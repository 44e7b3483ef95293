import pytest

from fourge.core.errors import DataError
from fourge.data.rows import json_rows, jsonl_rows, tsv_rows

PAIRS = (("user", "a"), ("assistant", "b"))


def test_a_row_of_each_syntax_is_the_same_pairs() -> None:
    row = '{"prompt": "a", "response": "b"}'
    chat = '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}'
    for rows in (
        tsv_rows("# c\n\na\tb\n"),
        jsonl_rows(row),
        jsonl_rows(chat),
        json_rows(f"[{row}]"),
    ):
        ((_, read),) = rows
        assert read() == PAIRS


def test_rows_keep_the_numbers_of_their_lines() -> None:
    assert [number for number, _ in tsv_rows("# c\n\na\tb\nc\td\n")] == [3, 4]


def test_a_bad_row_raises_when_it_is_read_and_not_before() -> None:
    (_, good), (_, bad) = tsv_rows("a\tb\nno tab\n")
    assert good() == PAIRS
    with pytest.raises(DataError):
        bad()
