import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from fourge.cli.screen import bar, counted, echo_json, listed


@dataclass(frozen=True)
class Value:
    path: Path
    text: str


def test_json_takes_dataclasses_and_paths(capsys: pytest.CaptureFixture[str]) -> None:
    echo_json(Value(Path("a/b"), "文字"))
    out = capsys.readouterr().out
    assert json.loads(out) == {"path": "a/b", "text": "文字"}
    assert "文字" in out


def test_json_refuses_what_has_no_form() -> None:
    with pytest.raises(TypeError):
        echo_json({"x": object()})


def test_no_bar_is_drawn_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with bar("work") as (started, done):
        started(2)
        done("a")
        done("b")
    assert capsys.readouterr().err == ""


def test_a_counted_bar_is_silent_too(capsys: pytest.CaptureFixture[str]) -> None:
    with counted() as show:
        show("asking", 1, 2)
        show("asking", 2, 2)
    assert capsys.readouterr().err == ""


def test_an_option_of_several_items_is_parted() -> None:
    assert listed("zh-TW, en,,") == ["zh-TW", "en"]
    assert listed("") == []
