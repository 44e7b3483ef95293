"""What is checked before a weight is loaded, on one process or on every one of a crew.

A crew checks together: a mistake that one rank meets is raised on all, and what they have read must
be the same. Where files lie may differ from machine to machine; what is in them may not. Only the
folder that is written to has to be one.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fourge.checkpoint.state import StoredState
from fourge.config.run import Run
from fourge.core.crew import Crew
from fourge.core.errors import ConfigError
from fourge.harness.planning import Planned, require_fits
from fourge.harness.resuming import dtype_of_run, refuse_existing, require_same_run, resumed
from fourge.harness.setup import Checked, Progress, check

_PLACE = re.compile(r"out|model\.path|data\.mix\.\d+\.path")


@dataclass(frozen=True, slots=True)
class Examined:
    """A run, read and found good, that fits; and the checkpoint it goes on from."""

    checked: Checked
    state: StoredState | None
    planned: Planned


def examined(run: Run, resume: bool, tell: Progress, crew: Crew) -> Examined:
    """Everything that can be refused before a weight is loaded.

    Raises:
        FourgeError: as the user's mistakes are, or because the ranks differ.
    """

    def examine() -> Examined:
        if not resume:
            refuse_existing(run)
        state = resumed(run) if resume else None
        checked = check(run, tell)
        if state is not None:
            require_same_run(state, run, checked)
        return Examined(checked, state, require_fits(run, crew))

    if crew.size == 1:
        return examine()
    from fourge.shard import agreement
    from fourge.shard.ranks import ranks_of

    ranks = ranks_of(crew)
    _require_rows(run, crew.size)
    found = agreement.together(ranks, examine)
    agreement.require_agreement(ranks, facts(run, found.checked, found.state))
    agreement.require_one_folder(ranks, run.out)
    return found


def facts(run: Run, checked: Checked, state: StoredState | None) -> dict[str, str]:
    """What must be the same on every rank, by name."""
    from fourge.shard.agreement import versions

    settings = {
        n: v for n, v in _leaves(run.model_dump(mode="json"), "") if not _PLACE.fullmatch(n)
    }
    packages = {f"version of {name}": found for name, found in versions().items()}
    step = "the beginning" if state is None else f"step {state.step}"
    dtype = dtype_of_run(run, state)
    return {**packages, **settings, "data": checked.dataset.digest, "going on from": step,
            "computing in": str(dtype).removeprefix("torch.")}  # fmt: skip


def require_same_model(crew: Crew, base_digest: str) -> None:
    """Raise unless every rank has loaded the same weights."""
    if crew.size > 1:
        from fourge.shard.agreement import require_agreement
        from fourge.shard.ranks import ranks_of

        require_agreement(ranks_of(crew), {"weights": base_digest})


def _leaves(tree: Any, at: str) -> Iterator[tuple[str, str]]:
    """Every setting, by its dotted name."""
    if isinstance(tree, dict | list) and tree:
        named = tree.items() if isinstance(tree, dict) else enumerate(tree)
        for name, value in named:
            yield from _leaves(value, f"{at}.{name}" if at else str(name))
    else:
        yield at, json.dumps(tree, ensure_ascii=False)


def _require_rows(run: Run, size: int) -> None:
    if run.train.batch < size:
        raise ConfigError(
            f"train.batch is {run.train.batch}, and there are {size} processes.",
            why="each of them takes some rows of every batch",
            fix=f"set train.batch to {size} or more",
        )
