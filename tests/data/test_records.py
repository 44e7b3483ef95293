import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourge.core.errors import DataError
from fourge.data.records import Example, Turn, read_examples

GOOD = (Turn("user", "Who are you?"), Turn("assistant", "我是 F# 之神"))


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def pairs(path: Path) -> list[list[tuple[str, str]]]:
    return [[(turn.role, turn.content) for turn in each.turns] for each in read_examples(path)]


def problem(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        read_examples(path)
    return caught.value.problem


def test_a_tsv_row_is_a_prompt_and_its_target(tmp_path: Path) -> None:
    path = write(
        tmp_path, "a.tsv", "# format: prompt<TAB>target\n\n你是誰\t我是 F# 之神。\nq \t a\n"
    )
    assert pairs(path) == [
        [("user", "你是誰"), ("assistant", "我是 F# 之神。")],
        [("user", "q "), ("assistant", " a")],
    ]
    assert [each.source for each in read_examples(path)] == [f"{path}:3", f"{path}:4"]


@pytest.mark.parametrize("name", ["a.txt", "a.TSV"])
def test_a_mark_of_utf8_and_returns_before_newlines_are_no_text(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, name, "\ufeff# note\r\nq\ta\r\n\r\nr\tb\r\n")
    assert [each[1][1] for each in pairs(path)] == ["a", "b"]
    path = write(tmp_path, "b.tsv", "\ufeffq\ta")
    assert pairs(path)[0][0] == ("user", "q")


def test_only_a_newline_ends_a_line(tmp_path: Path) -> None:
    target = "one\u2028two\x0bthree\x85four\rfive"
    assert pairs(write(tmp_path, "a.tsv", f"q\t{target}\n"))[0][1] == ("assistant", target)
    row = json.dumps({"prompt": "q", "response": target}, ensure_ascii=False)
    assert pairs(write(tmp_path, "a.jsonl", row))[0][1] == ("assistant", target)


def test_all_bad_lines_are_counted_and_the_first_ten_named(tmp_path: Path) -> None:
    lines = ["q\ta"] + ["no tab"] * 11 + ["# note", "", "q\ta\tb", "\ta", "q\t ", "q\ta"]
    said = problem(write(tmp_path, "a.tsv", "\n".join(lines)))
    assert said.startswith(f"{tmp_path / 'a.tsv'}: 14 of its 16 lines")
    assert "\n  line 2: no tab" in said
    assert "\n  line 11: no tab" in said
    assert "line 12" not in said
    assert said.endswith("\n  and 4 more")
    ten = problem(write(tmp_path, "a.tsv", "no tab\n" * 10))
    assert "line 10: no tab" in ten
    assert "more" not in ten


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("no tab here", "no tab"),
        ("a\tb\tc", "2 tabs"),
        ("\ta", "the user's text is empty"),
        ("  \ta", "the user's text is empty"),
        ("q\t", "the assistant's text is empty"),
        ("q\t \r", "the assistant's text is empty"),
    ],
)
def test_a_tsv_line_that_is_no_row_is_refused(tmp_path: Path, line: str, what: str) -> None:
    said = problem(write(tmp_path, "a.tsv", f"q\ta\n{line}\n"))
    assert "1 of its 2 lines" in said
    assert f"line 2: {what}" in said


@pytest.mark.parametrize("header", ["prompt\ttarget", "Question\tANSWER", " input \t output\r"])
def test_a_header_is_no_row_unless_rows_stand_before_it(tmp_path: Path, header: str) -> None:
    said = problem(write(tmp_path, "a.tsv", f"# note\n{header}\nq\ta\n"))
    assert "line 2: a header, not a row; put # in front of it" in said
    assert len(pairs(write(tmp_path, "a.tsv", f"q\ta\n{header}\n"))) == 2
    assert len(pairs(write(tmp_path, "a.tsv", f"# {header}\nprompt\tis a word\n"))) == 1


ROWS: list[tuple[dict[str, object], list[tuple[str, str]]]] = [
    ({"prompt": "q", "response": "a"}, [("user", "q"), ("assistant", "a")]),
    ({"prompt": "q", "response": "a", "id": 3}, [("user", "q"), ("assistant", "a")]),
    (
        {
            "messages": [
                {"role": "system", "content": ""},
                {"role": "user", "content": "q"},
                {"role": "assistant", "content": "a", "name": None},
                {"role": "user", "content": "r"},
                {"role": "assistant", "content": "b"},
            ]
        },
        [("system", ""), ("user", "q"), ("assistant", "a"), ("user", "r"), ("assistant", "b")],
    ),
    (
        {"conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "q"},
                           {"from": "gpt", "value": "a\nb\tc"}]},
        [("system", "s"), ("user", "q"), ("assistant", "a\nb\tc")],
    ),
]  # fmt: skip


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_each_shape_of_json_is_read_line_by_line(tmp_path: Path, name: str) -> None:
    text = "\n\n".join(json.dumps(row) for row, _ in ROWS)
    path = write(tmp_path, name, text)
    assert pairs(path) == [turns for _, turns in ROWS]
    assert [each.source for each in read_examples(path)] == [f"{path}:{n}" for n in (1, 3, 5, 7)]


@pytest.mark.parametrize("indent", [None, 2])
def test_a_json_list_is_read_with_the_line_each_row_begins_on(
    tmp_path: Path, indent: int | None
) -> None:
    text = "\n " + json.dumps([row for row, _ in ROWS], indent=indent)
    path = write(tmp_path, "a.json", text)
    assert pairs(path) == [turns for _, turns in ROWS]
    begins = [2, 2, 2, 2]
    if indent:
        lines = text.split("\n")
        begins = [n for n, line in enumerate(lines, 1) if line == "  {"]
    assert [each.source for each in read_examples(path)] == [f"{path}:{n}" for n in begins]


@given(st.lists(st.tuples(st.text(min_size=1), st.text(min_size=1)), min_size=1))
def test_any_text_comes_back_from_json(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    rows = [(q, a) for q, a in rows if q.strip() and a.strip()] or [("q", "a")]
    objects = [{"prompt": q, "response": a} for q, a in rows]
    folder = tmp_path_factory.mktemp("json")
    for name, text in (
        ("a.jsonl", "\n".join(map(json.dumps, objects))),
        ("a.json", json.dumps(objects, ensure_ascii=False)),
    ):
        expected = [[("user", q), ("assistant", a)] for q, a in rows]
        assert pairs(write(folder, name, text)) == expected


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ('{"prompt": "q", "answer": "a"}', "the keys are 'prompt', 'answer'; one of these"),
        ("{}", "the keys are none"),
        ('{"prompt": "q", "response": "a", "messages": []}', "the keys are"),
        ('{"prompt": 3, "response": "a"}', "'prompt' is a number, not text"),
        ('{"prompt": "q", "response": null}', "'response' is null, not text"),
        ('{"prompt": "q", "response": "a", "system": "s"}', "'system' would be lost"),
        ('{"prompt": "q", "response": "\\ud800"}', "half a surrogate pair"),
        ("[]", "a list, not an object"),
        ("true", "true or false, not an object"),
        ('{"prompt": "q"', "not JSON: Expecting ',' delimiter"),
        ("[" * 100000, "not JSON: nested too deeply"),
        ('{"messages": "q"}', "the conversation is text, not a list"),
        ('{"messages": []}', "the last turn is not the assistant's"),
        ('{"messages": ["q"]}', "a turn is text, not an object"),
        ('{"messages": [{"role": "user"}]}', "'content' is missing"),
        ('{"messages": [{"role": "tool", "content": "q"}]}', "'role' is 'tool'; it must be one of"),
        ('{"messages": [{"role": "user", "content": [{}]}]}', "'content' is a list, not text"),
        ('{"messages": [{"role": "user", "content": "q"}]}', "the last turn is not the assistant"),
        ('{"messages": [{"role": "assistant", "content": "a"}]}', "speaks before the user"),
        (
            '{"messages": [{"role": "user", "content": "q", "tool_calls": []}]}',
            "a turn has 'tool_calls', which would be lost",
        ),
        ('{"conversations": [{"from": "user", "value": "q"}]}', "'from' is 'user'; it must be"),
    ],
)
def test_a_json_row_that_cannot_be_taken_as_it_stands_is_refused(
    tmp_path: Path, row: str, what: str
) -> None:
    said = problem(write(tmp_path, "a.jsonl", f'{{"prompt": "q", "response": "a"}}\n{row}'))
    assert "1 of its 2 lines" in said
    assert f"line 2: {what}" in said or (what in said and "line 2: " in said)


def test_a_list_that_is_not_json_is_refused_at_the_line_where_it_breaks(tmp_path: Path) -> None:
    path = write(tmp_path, "a.json", '[\n{"prompt": "q", "response": "a"}\n{"prompt"')
    assert "line 3: not JSON" in problem(path)
    path = write(tmp_path, "a.json", '[{"prompt": "q", "response": "a"},\n["nested", 1],\n 2]')
    said = problem(path)
    assert "2 of its 3" in said
    assert "line 2: a list" in said
    assert "line 3: a number" in said


@pytest.mark.parametrize("text", ["", " \n\t\n", "\ufeff", "# only\n# comments\n"])
def test_a_file_without_rows_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match=r"is empty|has no rows"):
        read_examples(write(tmp_path, "a.tsv", text))


def test_an_empty_list_has_no_rows(tmp_path: Path) -> None:
    assert "has no rows" in problem(write(tmp_path, "a.json", "[ \n]"))


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    assert "No such file" in problem(tmp_path / "none.tsv")
    assert "ends in" not in problem(tmp_path / "none.tsv")
    (tmp_path / "folder.tsv").mkdir()
    assert "is not a file" in problem(tmp_path / "folder.tsv")
    assert "no kind of data file" in problem(write(tmp_path, "a.csv", "q\ta"))
    assert "could not be read" in problem(tmp_path / f"{'x' * 300}.tsv")
    with pytest.raises(DataError, match="not UTF-8") as caught:
        read_examples(write(tmp_path, "a.tsv", b"q\ta\nq\t\xff\n"))
    assert "line 2 has the byte 0xff" in caught.value.why


def test_a_very_long_line_is_a_row_like_any_other(tmp_path: Path) -> None:
    assert len(pairs(write(tmp_path, "a.tsv", f"q\t{'a' * 2_000_000}"))[0][1][1]) == 2_000_000


@pytest.mark.parametrize(
    ("turns", "source", "what"),
    [
        ((), "a:1", "last turn"),
        ((*GOOD, Turn("system", "s")), "a:1", "last turn"),
        (GOOD[::-1], "a:1", "last turn"),
        ((GOOD[1], *GOOD), "a:1", "before the user"),
        ((Turn("system", "s"), GOOD[1]), "a:1", "before the user"),
        (GOOD, "a", "not file:line"),
        (GOOD, "a:0", "not file:line"),
    ],
)
def test_an_example_that_cannot_be_learned_cannot_be_made(
    turns: tuple[Turn, ...], source: str, what: str
) -> None:
    with pytest.raises(DataError, match=what):
        Example(turns, source)
    assert Example(GOOD, "a:1").turns == GOOD


def test_a_turn_is_of_a_known_speaker() -> None:
    with pytest.raises(DataError, match="the role is 'bot'"):
        Turn("bot", "x")
