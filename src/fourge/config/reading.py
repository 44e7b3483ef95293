"""From a YAML file to checked settings, with every mistake said at once.

Keys given twice, bad ``name=value`` settings, wrong values and broken rules are collected before
anything is refused: a file is corrected once, not once for each mistake.
"""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from fourge.config.strict import RULES, Mistake, Place, Strict, explain, refusal, shown
from fourge.config.yaml_text import apply, read_yaml
from fourge.core.errors import ConfigError

S = TypeVar("S", bound=Strict)
Rules = Callable[[Any, Collection[Place]], list[Mistake]]  # a tree, and what is wrong already


def _no_rules(tree: Any, faults: Collection[Place]) -> list[Mistake]:
    return []


def load_settings(
    kind: type[S],
    path: Path,
    settings: Sequence[str] = (),
    *,
    called: str,
    begin: str,
    rules: Rules = _no_rules,
) -> S:
    """Read a file as settings of a kind, with ``name=value`` settings on top of it.

    ``rules`` finds what is wrong with several settings together, where some are wrong alone.

    Raises:
        ConfigError: it cannot be read, or is not valid; every mistake has a line.
    """
    tree, mistakes = read_yaml(path)
    if not isinstance(tree, dict):
        raise ConfigError(
            f"{path} is not {'an' if called[0] in 'aeiou' else 'a'} {called}.",
            why=f"it holds {shown(tree)}, not settings",
            fix=f"begin with {begin}",
        )
    tree, more = apply(tree, settings)
    mistakes += more
    checked = None
    try:
        checked = kind.model_validate(tree, context={"folder": path.absolute().parent})
    except ValidationError as error:
        found = explain(kind, error)
        if error.errors()[0]["type"] != RULES:  # which are kept only by settings that are sound
            found += rules(tree, [mistake.at for mistake in found])
        mistakes += found
    if checked is None or mistakes:
        raise refusal(f"{path} is not a valid {called}.", mistakes)
    return checked


def refuse_broken(mistakes: Sequence[Mistake]) -> None:
    """Inside a validator: raise for rules that are broken, if any."""
    if mistakes:
        lines = "; ".join(str(mistake) for mistake in mistakes)
        context = {"mistakes": list(mistakes), "lines": lines}
        raise PydanticCustomError(RULES, "{lines}", context)
