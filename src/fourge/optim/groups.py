"""Parameter groups: a learning rate or weight decay of their own for some layers.

They are named by patterns, or are the lower so much of the model's layers.

A layer's rate is a real learning rate. Multiplying its gradient instead would do nothing: Adam
divides by the gradient's own size.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor

from fourge.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class GroupRule:
    """What applies to parameters whose name matches one of the patterns (``*`` and ``?``)."""

    names: tuple[str, ...]
    lr: float | None = None
    weight_decay: float | None = None
    lower: float = 0.0  # and to those in this share of the layers, from the first on
    every: int | None = None  # steps from one that updates these to the next

    def applies(self, name: str, layers: int) -> bool:
        number = layer_of(name)
        is_lower = number is not None and number < self.lower * layers
        return is_lower or any(fnmatchcase(name, pattern) for pattern in self.names)

    def settings(self) -> dict[str, float]:
        given = {"lr": self.lr, "weight_decay": self.weight_decay, "every": self.every}
        return {name: value for name, value in given.items() if value is not None}


def grouped(
    named: Iterable[tuple[str, Tensor]], rules: Sequence[GroupRule]
) -> list[dict[str, Any]]:
    """Groups for a torch optimizer; the first rule that matches a name applies to it.

    Raises:
        ConfigError: a pattern matches nothing, or no layer is low enough.
    """
    named = list(named)
    _require_matches(named, rules)
    layers = 1 + max((layer_of(name) or 0 for name, _ in named), default=0)
    _require_lower(named, rules, layers)
    members: dict[int, list[tuple[str, Tensor]]] = {}
    for name, param in named:
        chosen = (at for at, rule in enumerate(rules) if rule.applies(name, layers))
        members.setdefault(next(chosen, len(rules)), []).append((name, param))
    settings = [rule.settings() for rule in rules] + [{}]
    return [{"params": params, **settings[i]} for i, params in sorted(members.items())]


def layer_of(name: str) -> int | None:
    """The number of the layer that a parameter is in; None outside of them."""
    numbers = [part for part in name.split(".") if part.isdecimal()]
    return int(numbers[0]) if numbers else None


def _require_matches(named: Sequence[tuple[str, Tensor]], rules: Sequence[GroupRule]) -> None:
    for pattern in (pattern for rule in rules for pattern in rule.names):
        if not any(fnmatchcase(name, pattern) for name, _ in named):
            raise ConfigError(
                f"No trained parameter's name matches {pattern!r}.",
                why="optim.groups is matched against whole names, with * and ?",
                fix=f"for example: *{named[-1][0].rpartition('.')[0].rpartition('.')[2]}*",
            )


def _require_lower(
    named: Sequence[tuple[str, Tensor]], rules: Sequence[GroupRule], layers: int
) -> None:
    for rule in (rule for rule in rules if rule.lower):
        if not any(replace(rule, names=()).applies(name, layers) for name, _ in named):
            raise ConfigError(
                f"No trained parameter is in the lower {rule.lower:g} of the layers.",
                why="with train.last_layers the lower ones are not trained",
                fix="raise lower in optim.groups, or leave the group out",
            )
