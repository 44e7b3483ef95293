"""What the documents say can be typed: every command parses, and every number is measured."""

import re
import shlex

import pytest

from fourge.cli.main import VERBS
from tests.documents import DOCUMENTS, ROOT, commands, text_of, without_blocks
from tests.test_docs import called

COMMANDS = [line for path in DOCUMENTS for line in commands(path) if line.startswith("fourge ")]
README, MEASURED = ROOT / "README.md", ROOT / "docs" / "benchmarks.md"


@pytest.mark.parametrize("command", dict.fromkeys(COMMANDS))
def test_every_command_in_the_documents_parses(command: str) -> None:
    verb, words = called(shlex.split(command)[1:])
    verb.make_context("fourge", words)


def test_the_documents_show_every_verb() -> None:
    shown = {shlex.split(command)[1] for command in COMMANDS}
    assert shown >= set(VERBS) - {"demo"}
    assert "make demo" in text_of(README)


def test_every_number_with_a_unit_is_among_the_measured_ones() -> None:
    found = re.findall(r"\d[\d.,]* (?:GiB|MiB|GB/s|MB|%)", without_blocks(README))
    assert len(found) >= 8
    measured = text_of(MEASURED)
    assert [number for number in found if number not in measured] == []


def test_what_make_is_asked_for_is_a_target() -> None:
    targets = re.findall(r"^(\w+):", text_of(ROOT / "Makefile"), re.M)
    asked = [line.split()[1] for line in commands(README) if line.startswith("make ")]
    assert set(asked) <= set(targets)
    assert {"demo", "install", "test"} <= set(asked)
