"""The messages that the page on trouble quotes are messages of the program."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.documents import ROOT, text_of

PAGE = ROOT / "docs" / "troubleshooting.md"
_LEAST = 6  # letters that a message has of its own, beside what is filled in


def quoted() -> Iterator[str]:
    """The code spans that are sentences, in the first column of the tables of symptoms."""
    for row in re.findall(r"^\| (.*?[^\\]) \|.*\|.*\|$", text_of(PAGE), re.M):
        for span in re.findall(r"`([^`]+)`", row):
            if " " in span and not span.startswith("fourge "):
                yield span.replace("\\|", "|")


@cache
def messages() -> list[re.Pattern[str]]:
    """Every text in the source as a pattern: what is filled in may be anything."""
    found: set[str] = set()
    for path in (ROOT / "src" / "fourge").rglob("*.py"):
        for node in ast.walk(ast.parse(text_of(path))):
            if isinstance(node, ast.JoinedStr | ast.Constant):
                found.add(_pattern(node))
    return [re.compile(text, re.S) for text in found if text]


def _pattern(node: ast.JoinedStr | ast.Constant) -> str:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    own = [str(part.value) if isinstance(part, ast.Constant) else None for part in parts]
    if sum(letter.isalpha() for text in own for letter in text or "") < _LEAST:
        return ""
    escaped = ("(.+)" if text is None else re.escape(text) for text in own)
    return "".join(escaped).replace("%s", "(.+)")


@pytest.mark.parametrize("message", list(quoted()))
def test_a_quoted_message_is_one_of_the_program(message: str) -> None:
    assert is_known(message), message


def is_known(message: str) -> bool:
    """Whether the program can say it, at least two fifths in words of its own."""
    for pattern in messages():
        found = pattern.fullmatch(message)
        if found and sum(map(len, found.groups())) <= 0.6 * len(message):
            return True
    return False


def test_a_message_that_nobody_writes_is_not_taken_for_one() -> None:
    assert is_known("runs/identity holds a run already.")
    assert not is_known("runs/identity holds two runs already.")
    assert not is_known("model.layers are never named in this way")


def test_there_are_enough_of_them() -> None:
    assert len(set(quoted())) >= 25


def test_every_exit_status_is_explained() -> None:
    statuses = re.findall(r"\b\d+\b", text_of(ROOT / "src/fourge/cli/main.py").split('"""')[1])
    told = text_of(PAGE).split("## Installing")[0]
    assert set(statuses) <= set(re.findall(r"\b\d+\b", told))
