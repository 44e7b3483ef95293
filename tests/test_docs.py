"""What the documents say exists: flags, settings, tests. Links: docs/test_links.py."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest
from pydantic import BaseModel

from fourge.cli.main import fourge
from fourge.config.experiment import Experiment
from fourge.config.run import Run
from fourge.config.strict import part_of
from tests.documents import DOCUMENTS, ROOT, named, spans, text_of

_FILES = (".py", ".jsonl", ".tsv", ".yaml")
per_document = pytest.mark.parametrize("path", DOCUMENTS, ids=named)


@cache
def settings() -> set[str]:
    """Every name that a run file or an experiment file knows, with dots."""
    return {name for model in (Run, Experiment) for name in _names(model, "")}


def _names(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield prefix + name
        if part := part_of(field.annotation):
            yield from _names(part, f"{prefix}{name}.")


def called(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that the words begin with, and the words behind it."""
    command: click.Command = fourge
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        inner = command.get_command(click.Context(command), words[0])
        assert inner is not None, f"fourge has no {words[0]}"
        command, words = inner, words[1:]
    return command, words


@per_document
def test_every_flag_beside_a_verb_is_one_of_its_flags(path: Path) -> None:
    for span in spans(path):
        if not re.match(r"fourge [a-z]", span):
            continue
        command, rest = called(
            span.removeprefix("fourge ").split(" -- ")[0].replace(" ...", "").split()
        )
        known = {flag for param in command.params for flag in (*param.opts, *param.secondary_opts)}
        given = {word.partition("=")[0] for word in rest if word.startswith("--")}
        assert given <= known | {"--help"}, span


@per_document
def test_every_setting_that_is_named_is_one(path: Path) -> None:
    sections = "|".join(name for name in settings() if "." not in name and name != "out")
    for span in spans(path):
        if found := re.fullmatch(rf"((?:{sections})\.[a-z_0-9]+)(?:[:=].*)?", span):
            assert found[1] in settings() or found[1].endswith(_FILES), span


def test_every_test_that_the_documents_name_is_there() -> None:
    text = text_of(ROOT / "docs" / "architecture.md")
    for name in re.findall(r"`tests/[\w/]+\.py", text):
        assert (ROOT / name.strip("`")).exists(), name
    for name in re.findall(r"::(test_\w+)", text):
        assert any(f"def {name}(" in text_of(p) for p in (ROOT / "tests").rglob("*.py")), name
