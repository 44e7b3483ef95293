"""A scripted conversation: what is asked in turn, under which limits, and what must come back.

    system: You answer in one sentence.
    turns:
      - prompt: What is the capital of France?
        max_tokens: 20
        seconds: 60
        expect: {contains: [Paris], lacks: [London], matches: ["^The"], ended: stop}
      - prompt: And what did I just ask?

``expect`` is optional, and everything in it must hold. ``reset: true`` on a turn begins a new
conversation before it. This is read before torch is loaded.
"""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from fourge.config.reading import load_settings
from fourge.config.strict import Many, Number, Strict, Text

Ending = Literal["stop", "stop string", "max tokens", "time", "context"]


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
    return pattern


Pattern = Annotated[str, Field(min_length=1), AfterValidator(_compiles)]


class ExpectSettings(Strict):
    """What a reply must be."""

    contains: Many[Text] = ()
    lacks: Many[Text] = ()
    matches: Many[Pattern] = ()
    ended: Ending | None = None


class TurnSettings(Strict):
    """One question."""

    prompt: Text
    reset: bool = False
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    seconds: Annotated[Number, Field(gt=0)] | None = None
    expect: ExpectSettings = ExpectSettings()


class Scenario(Strict):
    """A conversation to be had."""

    system: str = ""
    turns: Annotated[Many[TurnSettings], Field(min_length=1)]


def load_scenario(path: Path) -> Scenario:
    """Read a scenario.

    Raises:
        ConfigError: it cannot be read, or is not valid; every mistake is named.
    """
    return load_settings(Scenario, path, called="scenario", begin="turns:")
