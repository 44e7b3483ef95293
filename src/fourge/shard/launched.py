"""Whether ``torchrun`` started this process, from what it leaves in the environment.

No torch is loaded to find out: a run that was started by hand never loads torch.distributed.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from fourge.core.errors import ConfigError

_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True, slots=True)
class Launched:
    """This process's place among all that were started."""

    rank: int
    size: int
    local_rank: int
    local_size: int = 1  # how many of them are on this machine


def launched(environment: Mapping[str, str] = os.environ) -> Launched | None:
    """This process's place; None where it was started alone, or as the only one.

    Raises:
        ConfigError: the environment says half of it.
    """
    found = [name for name in _NAMES if name in environment]
    if "RANK" not in found or "WORLD_SIZE" not in found:
        return None
    missing = [name for name in _NAMES if name not in found]
    if missing:
        raise ConfigError(
            f"The environment has RANK and WORLD_SIZE, but no {' and no '.join(missing)}.",
            why="together they say that this process is one of several, and how to meet them",
            fix="start with torchrun, or unset RANK and WORLD_SIZE",
        )
    place = Launched(*(_number(environment, name) for name in _NAMES[:4]))
    return place if place.size > 1 else None


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment[name]
    if not text.isascii() or not text.isdigit():
        raise ConfigError(f"{name} is {text!r}; torchrun sets it to a number.")
    return int(text)
