"""What the documents say can be done: commands parse, links lead somewhere."""

import re
import shlex
from pathlib import Path

import click
import pytest

from fourge.cli.main import VERBS, fourge

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands() -> list[str]:
    found = []
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        found += [
            line.split("#")[0].strip() for line in re.findall(r"^\$ (fourge .*)$", text, re.M)
        ]
    return found


@pytest.mark.parametrize("command", commands())
def test_every_command_in_the_documents_parses(command: str) -> None:
    words = shlex.split(command)[1:]
    with fourge.make_context("fourge", list(words)) as context:
        verb = fourge.get_command(context, words[0])
        assert verb is not None
        if isinstance(verb, click.Group):
            child = verb.get_command(context, words[1])
            assert child is not None
            child.make_context(words[1], words[2:])
        else:
            verb.make_context(words[0], words[1:])


def test_the_documents_show_every_verb() -> None:
    shown = {shlex.split(command)[1] for command in commands()}
    assert shown >= set(VERBS) - {"demo"}
    assert "make demo" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\((?!http)([^)#]+)", path.read_text(encoding="utf-8")):
        assert (path.parent / link).exists(), link


def test_every_test_that_the_documents_name_is_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for name in re.findall(r"`tests/[\w/]+\.py", text):
        assert (ROOT / name.strip("`")).exists(), name
    for name in re.findall(r"::(test_\w+)", text):
        assert any(f"def {name}(" in p.read_text() for p in (ROOT / "tests").rglob("*.py")), name
