"""Settings that refuse what they do not know, and say every mistake at once in plain words.

``Strict`` is the base of every part of a settings file: frozen, no unknown names, and no value
turned into another type on the way in ("8" is not 8, 1 is not true). One thing YAML 1.1 gets
wrong is put right: it reads ``1e-5`` (no dot) as text, so a ``Number`` takes text of that form.

pydantic finds the mistakes; its own words for them are meant for programmers. ``explain`` turns
each into a ``Mistake``: the dotted name of the setting, and what it is and must be.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from fourge.core.errors import ConfigError

Place = tuple[str | int, ...]
T = TypeVar("T")

RULES = "rules"  # the type of an error that brings its own list of mistakes
_EXPONENT = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+")
_MAPPING = "settings, as in {name: value}"
_FIXED = {
    "missing": "is required",
    "string_too_short": "is empty; it must not be",
    "too_short": "is empty; it must have an entry",
}
_WANTED = {
    "bool_type": "true or false",
    "dict_type": _MAPPING,
    "finite_number": "a finite number",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_type": "a whole number",
    "is_instance_of": "a path",
    "model_type": _MAPPING,
    "string_type": "text",
    "string_unicode": "text that UTF-8 can hold",
    "tuple_type": "a list, as in [one, two]",
}
_BOUNDS = {
    "greater_than": ("gt", "more than {}"),
    "greater_than_equal": ("ge", "{} or more"),
    "less_than": ("lt", "less than {}"),
    "less_than_equal": ("le", "{} or less"),
}


class Strict(BaseModel):
    """A part of a settings file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def as_number(value: object) -> object:
    """A number that YAML took for text, as a number; anything else as it is."""
    return float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value) else value


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


Number = Annotated[float, BeforeValidator(as_number)]
Many = Annotated[tuple[T, ...], BeforeValidator(_tuple)]
Text = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong: where, and what to read there."""

    at: Place
    says: str

    def __str__(self) -> str:
        return f"{dotted(self.at)}: {self.says}"


def dotted(place: Place) -> str:
    """``("data", "mix", 0)`` as a person writes it: ``data.mix.0``."""
    return ".".join(str(part) for part in place)


def refusal(problem: str, mistakes: Sequence[Mistake]) -> ConfigError:
    """One error for all of them: the problem, then a line for each."""
    return ConfigError("\n".join([problem, *(f"  {mistake}" for mistake in mistakes)]))


def explain(model: type[Strict], error: ValidationError) -> list[Mistake]:
    """What pydantic found, as mistakes, in the order of the settings."""
    found: list[Mistake] = []
    for each in error.errors():
        if each["type"] == RULES:
            found.extend(each["ctx"]["mistakes"])
        else:
            found.append(Mistake(each["loc"], _says(model, each)))
    return found


def _says(model: type[Strict], error: ErrorDetails) -> str:
    kind, given, context = error["type"], shown(error["input"]), error.get("ctx", {})
    if kind in _FIXED:
        return _FIXED[kind]
    if kind in ("extra_forbidden", "invalid_key"):
        return _unknown(model, error["loc"])
    if kind == "literal_error":
        choices = re.findall(r"'([^']+)'", context["expected"])
        return f"is {given}; one of: {', '.join(choices)}{_nearest(error['input'], choices)}"
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return f"is {given}; it must be {words.format(context[key])}"
    if kind in _WANTED:
        return f"is {given}; it must be {_WANTED[kind]}"
    return str(context["error"]) if kind == "value_error" else error["msg"]


def shown(value: object) -> str:
    """A value as it would stand in the file, short enough for a line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return f"{value!r:.60}" if isinstance(value, str) else f"{value!s:.60}"


def _unknown(model: type[Strict], at: Place) -> str:
    """That there is no such setting, with the name beside it or, failing that, elsewhere."""
    parent = _part_at(model, at[:-1])
    hint = _nearest(at[-1], list(parent.model_fields)) if parent else ""
    if not hint:
        elsewhere = {str(place[-1]): place for place in _settings_of(model)}
        close = get_close_matches(str(at[-1]), elsewhere, n=1, cutoff=0.8)
        hint = f"; did you mean {dotted(elsewhere[close[0]])}?" if close else ""
    return f"no such setting{hint}"


def _nearest(given: object, names: Sequence[str]) -> str:
    close = get_close_matches(str(given), names, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def part_of(annotation: object) -> type[Strict] | None:
    """The part that a field holds: itself, or the entries of its list."""
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        return annotation
    return next((part for each in get_args(annotation) if (part := part_of(each))), None)


def _part_at(model: type[Strict], at: Place) -> type[Strict] | None:
    part: type[Strict] | None = model
    for name in at:
        if part and isinstance(name, str):
            field = part.model_fields.get(name)
            part = part_of(field.annotation) if field else None
    return part


def _settings_of(model: type[Strict], at: Place = ()) -> Iterator[Place]:
    for name, field in model.model_fields.items():
        yield (*at, name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, Strict):
            yield from _settings_of(field.annotation, (*at, name))
