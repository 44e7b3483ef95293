"""The run file: what to train, on what, how, and where to put it.

    model: {path: smollm2-135m}
    data: {mix: [{path: identity.jsonl, weight: 1}, {path: replay.jsonl, weight: 10}]}
    train: {steps: 200}
    optim: {lr: 1e-5}
    out: runs/identity

Everything else has a default, written in ``settings.py`` beside its name; a name that is not
there is a mistake. Relative paths are taken from the file's own folder, so a run file can be
started from anywhere. ``to_yaml`` writes every setting out, with absolute paths, as the record
of the run.

This is read before torch is loaded, and imports nothing that loads it.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, Self

import yaml  # type: ignore[import-untyped]
from pydantic import ValidationError, model_validator

from fourge.config.reading import load_settings, refuse_broken
from fourge.config.rules import broken_rules
from fourge.config.settings import (
    DataSettings,
    GuardSettings,
    MemorySettings,
    ModelSettings,
    OptimSettings,
    PathHere,
    TrainSettings,
)
from fourge.config.strict import Strict, dotted, explain
from fourge.core.errors import FormatError


class Recorded(Strict):
    """Settings that are written down whole, with absolute paths, and read back."""

    def to_yaml(self) -> str:
        """All settings, as a file that reads back as these."""
        tree = self.model_dump(mode="json")
        return str(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=100))

    @classmethod
    def from_yaml(cls, text: str) -> Self:
        """What ``to_yaml`` wrote; files that it names may be gone since.

        Raises:
            FormatError: it was written by another version, or was edited.
        """
        try:
            return cls.model_validate(yaml.safe_load(text))
        except (ValidationError, yaml.YAMLError) as error:
            mistakes = explain(cls, error) if isinstance(error, ValidationError) else [error]
            raise FormatError(
                "The recorded settings cannot be read.",
                why="; ".join(str(mistake) for mistake in mistakes),
                fix="use the version of fourge that wrote them, or begin anew with another out",
            ) from error

    def digest(self) -> str:
        """The same for the same settings, however the file was written."""
        tree = self.model_dump(mode="json")
        text = json.dumps(tree, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class Run(Recorded):
    """Every setting of one run, checked one by one and together."""

    model: ModelSettings
    data: DataSettings
    train: TrainSettings = TrainSettings()
    optim: OptimSettings = OptimSettings()
    memory: MemorySettings = MemorySettings()
    guard: GuardSettings = GuardSettings()
    out: PathHere

    @model_validator(mode="after")
    def _keeps_the_rules(self) -> Self:
        refuse_broken(broken_rules(Run, self.model_dump()))
        return self


def load_run(path: Path, settings: Sequence[str] = ()) -> Run:
    """Read a run file, with ``name=value`` settings on top of it.

    Raises:
        ConfigError: it cannot be read, or is not a valid run; every mistake has a line.
    """
    return load_settings(
        Run, path, settings, called="run file", begin="model:, data:, train: and out:",
        rules=partial(broken_rules, Run),
    )  # fmt: skip


def difference(one: Strict, other: Strict) -> list[str]:
    """The settings that differ, one a line: ``optim.lr: 1e-05 -> 2e-05``."""
    return list(_differing(one.model_dump(mode="json"), other.model_dump(mode="json"), ()))


_NOTHING = object()


def _differing(one: Any, other: Any, at: tuple[str | int, ...]) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in {**one, **other}:
            yield from _differing(one.get(name, _NOTHING), other.get(name, _NOTHING), (*at, name))
    elif isinstance(one, list) and isinstance(other, list):
        for index, pair in enumerate(zip_longest(one, other, fillvalue=_NOTHING)):
            yield from _differing(*pair, (*at, index))
    elif (before := _written(one)) != (after := _written(other)):
        yield f"{dotted(at)}: {before} -> {after}"


def _written(value: Any) -> str:
    return "nothing" if value is _NOTHING else json.dumps(value, ensure_ascii=False)
