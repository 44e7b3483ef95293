"""What the documents say can be typed: every command parses."""

import shlex

import click
import pytest

from fourge.cli.main import VERBS, fourge
from tests.documents import DOCUMENTS, ROOT, commands, text_of

COMMANDS = [line for path in DOCUMENTS for line in commands(path) if line.startswith("fourge ")]


@pytest.mark.parametrize("command", COMMANDS)
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
    shown = {shlex.split(command)[1] for command in COMMANDS}
    assert shown >= set(VERBS) - {"demo"}
    assert "make demo" in text_of(ROOT / "README.md")
