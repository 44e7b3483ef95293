"""Help that can be read: 80 columns, a sentence for every option, nothing cut off."""

import re

import click
import pytest
from click.testing import CliRunner

from fourge.cli.main import fourge
from tests.cli.every import COMMANDS, Words

per_command = pytest.mark.parametrize("words", COMMANDS, ids=lambda words: "-".join(words) or "-")


def help_of(words: Words) -> str:
    done = CliRunner().invoke(
        fourge, [*words, "--help"], prog_name="fourge", terminal_width=80, catch_exceptions=False
    )
    assert done.exit_code == 0
    return done.output


@per_command
def test_no_line_is_longer_than_80_columns(words: Words) -> None:
    assert max(map(len, help_of(words).splitlines())) <= 80


@per_command
def test_nothing_is_cut_off_and_no_mark_is_left(words: Words) -> None:
    text = help_of(words).partition("\n")[2]  # the usage line has dots of its own
    assert not re.search(r"\w\.\.\.$|\\b|\x08", text, re.M)


@per_command
def test_every_option_has_a_sentence(words: Words) -> None:
    for param in COMMANDS[words].params:
        if isinstance(param, click.Option) and not param.hidden:
            assert param.help, param.opts
            assert param.help.partition("  [default")[0].endswith((".", "?")), param.help


@per_command
def test_a_command_says_what_it_is_and_how_it_ends(words: Words) -> None:
    command = COMMANDS[words]
    assert command.help
    if not isinstance(command, click.Group):
        assert "Exit status: 0" in (command.epilog or "") or words == ("guard",)
        assert "Exit status: " in help_of(words)


def test_examples_keep_their_lines() -> None:
    lines = [line.strip() for line in help_of(("completion",)).splitlines()]
    assert "fourge completion fish > ~/.config/fish/completions/fourge.fish" in lines
