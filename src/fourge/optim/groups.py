"""Parameter groups by name: a learning rate or weight decay of their own for some layers.

A layer's rate is a real learning rate. Multiplying its gradient instead would do nothing: Adam
divides by the gradient's own size.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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

    def settings(self) -> dict[str, float]:
        given = {"lr": self.lr, "weight_decay": self.weight_decay}
        return {name: value for name, value in given.items() if value is not None}


def grouped(
    named: Iterable[tuple[str, Tensor]], rules: Sequence[GroupRule]
) -> list[dict[str, Any]]:
    """Groups for a torch optimizer; the first rule that matches a name applies to it.

    Raises:
        ConfigError: a pattern matches nothing.
    """
    named = list(named)
    for pattern in (pattern for rule in rules for pattern in rule.names):
        if not any(fnmatchcase(name, pattern) for name, _ in named):
            raise ConfigError(
                f"No trained parameter's name matches {pattern!r}.",
                why="optim.groups is matched against whole names, with * and ?",
                fix=f"for example: *{named[-1][0].rpartition('.')[0].rpartition('.')[2]}*",
            )
    members: dict[int, list[tuple[str, Tensor]]] = {}
    for name, param in named:
        chosen = (i for i, r in enumerate(rules) if any(fnmatchcase(name, p) for p in r.names))
        members.setdefault(next(chosen, len(rules)), []).append((name, param))
    settings = [rule.settings() for rule in rules] + [{}]
    return [{"params": params, **settings[i]} for i, params in sorted(members.items())]
