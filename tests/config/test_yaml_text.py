from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourge.config.yaml_text import apply, parse, read_yaml
from fourge.core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: 1\nb: [1, 2\n", "line 3: "),
        ("a: 1\n\tb: 2\n", "line 2: "),
        ("a: 1\n---\nb: 2\n", "line 2: "),
        ("a: 1\nb: \x01\n", "line 2: "),
        ("a: &x\n  - *x\n", "line 1: a value refers to itself"),
        ('a: 1\nb: "\\ud800"\n', "line 2: half of a pair"),
        ("a: 2024-13-01\n", "month"),
        ("a: !!int x\n", "invalid literal"),
        ("a: !!bool x\n", ""),
        ("a: !!timestamp x\n", ""),
        ("a: !!python/object:os.system x\n", "line 1: "),
        ("[" * 5000, ""),
    ],
)
def test_what_is_not_yaml_is_refused_with_its_line(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"a\.yaml is not YAML") as caught:
        read_yaml(path)
    assert caught.value.why.startswith(why) or why in caught.value.why


def test_text_that_is_not_utf8_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(ConfigError, match="not UTF-8") as caught:
        read_yaml(path)
    assert caught.value.why == "line 2 holds the byte 0xff"


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "null\n"])
def test_an_empty_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ConfigError, match="is empty"):
        read_yaml(tmp_path / "a.yaml")


def test_a_file_that_is_not_there_is_said_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml could not be read: No such file"):
        read_yaml(tmp_path / "nowhere.yaml")
    with pytest.raises(ConfigError, match="Is a directory"):
        read_yaml(tmp_path)


def test_a_byte_order_mark_is_not_part_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_yaml(tmp_path / "a.yaml") == ({"a": 1}, [])


def test_keys_given_twice_are_found_at_every_depth() -> None:
    _, repeated = parse("a: 1\nb: [{c: 1,\n c: 2}]\na: 3\nd: {e: 1, e: 1}\n")
    assert [str(each) for each in repeated] == [
        "a: is given twice, on lines 1 and 4",
        "b.0.c: is given twice, on lines 2 and 3",
        "d.e: is given twice, on line 5",
    ]


def test_an_alias_may_be_used_more_than_once() -> None:
    value, repeated = parse("a: &x {b: 1}\nc: *x\nd: {<<: *x, e: 2}\n")
    assert value == {"a": {"b": 1}, "c": {"b": 1}, "d": {"b": 1, "e": 2}}
    assert not repeated


def test_aliases_of_aliases_take_no_time() -> None:
    lines = ["a0: &a0 [1, 1]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 60)]
    assert parse("\n".join(lines))[1] == []


@given(
    st.text(
        alphabet=st.sampled_from("ab:-[]{}&*!?|>'\"%@`#,. \n\t0123456789eE_~<\\xud"), max_size=60
    )
)
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(ValueError):
        parse(text)


@pytest.mark.parametrize(
    ("setting", "tree"),
    [
        ("a=2", {"a": 2, "b": {"c": [{"d": 1}, 5]}}),
        ("b.c.0.d=x", {"a": 1, "b": {"c": [{"d": "x"}, 5]}}),
        ("b.c.1=[1, y]", {"a": 1, "b": {"c": [{"d": 1}, [1, "y"]]}}),
        ("b.c=null", {"a": 1, "b": {"c": None}}),
        ("b.c=", {"a": 1, "b": {"c": None}}),
        ("e.f=a=b", {"a": 1, "b": {"c": [{"d": 1}, 5]}, "e": {"f": "a=b"}}),
    ],
)
def test_a_setting_replaces_one_value(setting: str, tree: Any) -> None:
    before = {"a": 1, "b": {"c": [{"d": 1}, 5]}}
    assert apply(before, [setting]) == (tree, [])
    assert before == {"a": 1, "b": {"c": [{"d": 1}, 5]}}


def test_a_setting_changes_one_use_of_an_alias() -> None:
    value, _ = parse("[&x {a: 1}, *x]")
    assert apply(value, ["0.a=2"])[0] == [{"a": 2}, {"a": 1}]


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("a", "--set a: a setting is written as name=value, as in optim.lr=2e-5"),
        ("=1", "--set =1: a setting is written as name=value, as in optim.lr=2e-5"),
        ("a..b=1", "--set a..b=1: a setting is written as name=value, as in optim.lr=2e-5"),
        ("a.b=1", "--set a.b=1: a is a single value; it has no b"),
        ("b.c.2=1", "--set b.c.2=1: b.c is a list of 2; its first entry is 0"),
        ("b.c.-1=1", "--set b.c.-1=1: b.c is a list of 2; its first entry is 0"),
        ("b.c.x=1", "--set b.c.x=1: b.c is a list of 2; its first entry is 0"),
        ("a={x: 1, x: 2}", "x: is given twice, on line 1"),
    ],
)
def test_a_setting_that_cannot_be_is_a_mistake(setting: str, says: str) -> None:
    _, found = apply({"a": 1, "b": {"c": [{"d": 1}, 5]}}, [setting])
    assert [str(each) for each in found] == [says]


def test_a_setting_whose_value_is_not_yaml_is_a_mistake() -> None:
    tree, (mistake,) = apply({"a": 1}, ["a=[1"])
    assert tree == {"a": 1}
    assert str(mistake).startswith("--set a=[1: line 1: ")
