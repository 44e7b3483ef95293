"""A prepared model, sharded, as the training loop and the optimizer want it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fourge.core.crew import Crew
from fourge.optim.part import Part
from fourge.shard.model import shard_
from fourge.shard.part import part_of
from fourge.shard.ranks import ranks_of
from fourge.train.loop import Engine


def sharded_(
    model: Any, crew: Crew, *, compute: torch.dtype
) -> tuple[Engine, Callable[[Tensor], Part]]:
    """Shard a model in place; how its steps are computed, and what of a parameter is here."""
    ranks = ranks_of(crew)
    sharded = shard_(model, ranks, compute=compute)
    return Engine(ranks, sharded.loss, sharded.code_samples), part_of
