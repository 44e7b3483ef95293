"""Commands that torchrun starts many times over: one crew, and one voice.

Every rank leaves with the same status. What went wrong is said once: by the first rank, or, when a
rank is gone, by whoever noticed first.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import click

from fourge.core.crew import ALONE, Crew
from fourge.core.errors import ConfigError, FourgeError
from fourge.shard.launched import Launched, launched


@contextmanager
def crew_of(place: Launched | None, device: str) -> Iterator[Crew]:
    """The processes that torchrun started, or this one alone."""
    if place is None:
        yield ALONE
        return
    from fourge.model.swap import choose_device
    from fourge.shard.ranks import joined

    if place.rank > 0:
        logging.getLogger("fourge").setLevel(logging.WARNING)
    kind = choose_device(device).type
    with _one_voice(place), joined(place, kind) as ranks, ranks.watched():
        yield ranks


@contextmanager
def _one_voice(place: Launched) -> Iterator[None]:
    """A block whose errors all ranks have, and one says."""
    try:
        yield
    except FourgeError as error:
        if getattr(error, "said", place.rank > 0):
            raise click.exceptions.Exit(error.exit_code) from error
        raise


def refuse_crew(verb: str) -> None:
    """Raise if torchrun started a command that runs in one process."""
    if launched() is not None:
        raise ConfigError(
            f"fourge {verb} runs in one process, and torchrun started several.",
            fix="start it without torchrun; fourge train is what several processes can share",
        )
