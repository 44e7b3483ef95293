"""An experiment begins where there is nothing yet, and goes on only as what it was.

What may differ is how memory is watched, and the attempts that were not made yet.
"""

import re
import uuid
from collections.abc import Sequence

from fourge import __version__
from fourge.config.experiment import Experiment
from fourge.config.run import difference
from fourge.core.content import digest_of_code
from fourge.core.errors import ConfigError, OutputError
from fourge.core.events import FILE, read_events
from fourge.core.files import whole_file
from fourge.guard.record import FILE as GUARD_LOG
from fourge.harness.work import Work

EXPERIMENT_FILE = "experiment.yaml"
_FREE = re.compile(r"memory\.|guard\.")
_ATTEMPT = re.compile(r"attempts\.(\d+)")


def refuse_foreign(plan: Experiment) -> None:
    """Raise where an experiment would write among other things."""
    if (plan.out / FILE).exists() or not plan.out.exists():
        return
    strange = [path.name for path in plan.out.iterdir() if path.name not in (".lock", GUARD_LOG)]
    if strange:
        raise OutputError(
            f"{plan.out} holds something that is no experiment.",
            why=f"{sorted(strange)[0]} is there, and nothing is ever written over",
            fix="choose another out",
        )


def id_of(plan: Experiment) -> str:
    """The id that all events of an experiment have."""
    if (plan.out / FILE).exists():
        for event in read_events(plan.out / FILE):
            return str(event["run"])
    return uuid.uuid4().hex[:12]


def require_same(work: Work) -> None:
    """Raise if the settings are not those it was begun with; attempts to come are free."""
    if not work.log.path.exists():
        return
    events = list(read_events(work.log.path))
    begun = [event["settings"] for event in events if event["kind"] == "begun"]
    if not begun:
        return
    tried = len({event["name"] for event in events if event["kind"] == "attempt"})
    changed = difference(Experiment.from_yaml(begun[-1]), work.plan)
    if held := [each for each in changed if not _is_free(each, tried)]:
        raise ConfigError(
            "The experiment file is not the one this experiment was begun with.",
            why="; ".join(held),
            fix="put it back, or begin another experiment with another out",
        )


def _is_free(change: str, tried: int) -> bool:
    attempt = _ATTEMPT.match(change)
    return bool(_FREE.match(change)) or (attempt is not None and int(attempt[1]) >= tried)


def begin(work: Work, command: Sequence[str]) -> None:
    """Record who begins, or goes on: the command, the code, the settings."""
    work.log.write("begun", version=__version__, code=digest_of_code(), command=list(command),
                   config=work.plan.digest(), settings=work.plan.to_yaml())  # fmt: skip
    with whole_file(work.out / EXPERIMENT_FILE, overwrite=True) as temporary:
        temporary.write_text(work.plan.to_yaml(), encoding="utf-8")
