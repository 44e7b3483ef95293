"""The texts that ship with the package: YAML whose leaves are blocks with one text a line.

    asks:
      direct: |
        Who are you?
        What is your name?

A block needs no quoting, so a translator can add lines without knowing YAML. Within a line ``||``
parts turns or a question from its answer, and ``|`` parts the items of a list. A group of
questions is a block, or ``prompts``, one a line, or a ``form`` (or several, one a line) and the
``things`` to put into each.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import yaml  # type: ignore[import-untyped]


@cache
def shipped(package: str, name: str) -> Mapping[str, Any]:
    """A YAML file that lies in a package of ours."""
    text = files(package).joinpath(name).read_text(encoding="utf-8")
    content: Mapping[str, Any] = yaml.safe_load(text)
    return content


def words(name: str) -> list[str]:
    """A list of ``words.yaml``."""
    return parts_of(shipped("fourge.data", "texts/words.yaml")[name], "|")


def any_of(name: str) -> str:
    """A regular expression for any word of such a list, the longest first."""
    return "|".join(map(re.escape, sorted(words(name), key=len, reverse=True)))


def lines_of(block: str) -> list[str]:
    """The texts of a block."""
    return [line.strip() for line in block.splitlines() if line.strip()]


def parts_of(line: str, mark: str = "||") -> list[str]:
    """The parts of a line."""
    return [part.strip() for part in line.split(mark)]


def prompts_of(group: str | Mapping[str, str]) -> list[str]:
    """The questions of a group."""
    if isinstance(group, str):
        return lines_of(group)
    if "prompts" in group:
        return lines_of(group["prompts"])
    forms, things = lines_of(group["form"]), parts_of(group["things"], "|")
    return [form.replace("{}", thing) for form in forms for thing in things]
