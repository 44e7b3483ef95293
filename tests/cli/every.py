"""Every command of the program, groups included, by the words that call it."""

from collections.abc import Iterator

import click

from fourge.cli.main import fourge

Words = tuple[str, ...]


def _below(command: click.Command, words: Words) -> Iterator[tuple[Words, click.Command]]:
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None, name
            yield from _below(inner, (*words, name))


COMMANDS: dict[Words, click.Command] = dict(_below(fourge, ()))
