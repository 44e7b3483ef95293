"""Before anything is loaded: do all ranks mean the same run?

Every rank says what it sees: versions, settings, data, the checkpoint it would go on from, the
folder it writes to. They are compared where they differ, by name, and all ranks stop with the same
message, which the first one says. A rank that has found a mistake of its own says that instead, so
that nobody waits for it.
"""

import platform
import uuid
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from fourge import __version__
from fourge.core.errors import ConfigError, FourgeError
from fourge.shard.ranks import Ranks

T = TypeVar("T")
_PACKAGES = ("torch", "transformers", "safetensors", "numpy")


def versions() -> dict[str, str]:
    """What this rank computes with."""
    found = {package: version(package) for package in _PACKAGES}
    return {"fourge": __version__, "python": platform.python_version(), **found}


def require_agreement(ranks: Ranks, facts: dict[str, str]) -> None:
    """Raise, on every rank, unless all of them say the same.

    Raises:
        ConfigError: they do not; every difference from the first rank is named.
    """
    said = ranks.everyones(facts)
    differences = [
        f"{name}: rank 0 has {said[0].get(name, 'nothing')}, "
        f"rank {rank} has {other.get(name, 'nothing')}"
        for rank, other in enumerate(said)
        for name in {**said[0], **other}
        if said[0].get(name) != other.get(name)
    ]
    if differences:
        raise ConfigError(
            "The ranks do not agree on what to run.",
            why="; ".join(differences[:8]),
            fix="give every machine the same files, settings and packages",
        )


def together(ranks: Ranks, work: Callable[[], T]) -> T:
    """Do something on every rank; if it fails on one, raise its error on all.

    Raises:
        FourgeError: what a rank raised: its own on that rank, the same words on the others.
    """
    error: FourgeError | None = None
    result: Any = None
    try:
        result = work()
    except FourgeError as caught:
        error = caught
    words = None if error is None else (error.problem, error.why, error.fix, error.exit_code)
    said = ranks.everyones(words)
    failed = next((rank for rank, each in enumerate(said) if each), None)
    if failed is None:
        done: T = result
        return done
    problem, why, fix, code = said[failed]
    same = FourgeError(problem if failed == 0 else f"Rank {failed}: {problem}", why=why, fix=fix)
    same.exit_code = code
    raise same from error


def require_one_folder(ranks: Ranks, folder: Path) -> None:
    """Raise unless what one rank writes into a folder is there for all.

    Raises:
        ConfigError: the folder is another one on some rank.
    """
    name = ranks.of_first(f".ranks-{uuid.uuid4().hex}")
    if ranks.is_first:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    ranks.meet()
    seen = ranks.everyones((folder / name).exists())
    if ranks.is_first:
        (folder / name).unlink()
    if not all(seen):
        raise ConfigError(
            f"{folder} is not the same folder on every rank.",
            why=f"rank {seen.index(False)} does not see what rank 0 writes there; a checkpoint is "
            "written by all ranks",
            fix="put out on a file system that every machine has, over NFS for one",
        )
