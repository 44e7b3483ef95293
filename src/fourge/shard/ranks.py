"""The crew of a run that ``torchrun`` started: one process for each part of every weight.

Two kinds of words pass between ranks. **Control** (a flag, a count, a checkpoint's index) goes over
gloo, whatever the device, and may wait long: one rank's disk can be slow. **Data** (weights,
gradients) goes over NCCL on GPUs and gloo on CPUs, where nobody should ever wait longer than a
step takes: after ``STEP_S`` without an answer a rank counts as dead.

A rank that is killed is noticed sooner, by its closed connections. Then every other rank stops,
with the same exit status, and exactly one of them says so: the first to count itself in torchrun's
store, which outlives the ranks.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from fourge.core.crew import Crew
from fourge.core.errors import ConfigError, FourgeError, first_line
from fourge.shard.launched import Launched

SETUP_S = 900.0  # the slowest disk may take so much longer than the fastest
MEET_S = 50.0  # torchrun starts them when all machines have met: what is left is imports
STEP_S = 40.0  # within the minute that a run has to end in


class RankLostError(FourgeError):
    """Another rank is gone. ``said`` is whether somebody has told the user already."""

    exit_code = 4

    def __init__(self, problem: str, *, why: str, fix: str, said: bool) -> None:
        super().__init__(problem, why=why, fix=fix)
        self.said = said


class Ranks(Crew):
    """This process, and the way to the others."""

    def __init__(self, place: Launched, device: torch.device, store: Any) -> None:
        self.rank, self.size, self.here = place.rank, place.size, place.local_size
        self.device, self._store = device, store
        self._control = dist.group.WORLD
        data = "nccl" if device.type == "cuda" else "gloo"
        self._data = dist.new_group(backend=data, timeout=timedelta(seconds=STEP_S))
        own, _ = dist.new_subgroups(1, backend=data)
        self.rows = DeviceMesh.from_group(self._data, device.type, mesh_dim_names=("rows",))
        self.copies = DeviceMesh.from_group(  # the same everywhere: each part is the whole
            [self._data, own], device.type, mesh=torch.arange(self.size).view(-1, 1),
            mesh_dim_names=("copies", "whole"),
        )  # fmt: skip

    def sums(self, values: Sequence[float]) -> list[float]:
        totals = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(totals, group=self._control)
        found: list[float] = totals.tolist()
        return found

    def largest_(self, values: Tensor) -> Tensor:
        """Each value's largest over the ranks, in place."""
        dist.all_reduce(values, op=dist.ReduceOp.MAX, group=self._data)
        return values

    def of_first(self, value: Any) -> Any:
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self._control)
        return box[0]

    def everyones(self, value: Any) -> list[Any]:
        """What each rank gave, in the order of the ranks."""
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, value, group=self._control)
        return found

    def meet(self) -> None:
        """Wait until every rank is here."""
        dist.barrier(group=self._control)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """A block in which the loss of another rank becomes a ``RankLostError``."""
        with watching(self._store):
            yield


def ranks_of(crew: Crew) -> Ranks:
    """A crew of more than one, as what it is."""
    assert isinstance(crew, Ranks), "torchrun started this run"
    return crew


@contextmanager
def watching(store: Any) -> Iterator[None]:
    """A block in which the loss of another rank becomes a ``RankLostError``."""
    try:
        yield
    except (dist.DistError, RuntimeError) as error:
        if not _is_of_the_network(error):
            raise
        raise RankLostError(
            "Another rank is gone, so this run has ended on every rank.",
            why=first_line(error),
            fix="start again with --resume: it goes on from the last checkpoint",
            said=not _is_first_to_say(store),
        ) from error


def _is_first_to_say(store: Any) -> bool:
    try:
        return bool(store.add("fourge/lost", 1) == 1)
    except (dist.DistError, RuntimeError):  # torchrun itself is gone
        return True


def _is_of_the_network(error: Exception) -> bool:
    """Gloo raises a plain RuntimeError; its text begins with the place in gloo's own source."""
    text = str(error)
    return isinstance(error, dist.DistError) or any(
        word in text for word in ("gloo/", "NCCL", "Connection closed", "Connection reset")
    )


@contextmanager
def joined(place: Launched, device_type: str) -> Iterator[Ranks]:
    """The crew that torchrun started, for the length of the block.

    Raises:
        ConfigError: ranks were started for different numbers of them, or some never came.
    """
    device = torch.device(device_type)
    if device.type == "cuda":
        device = torch.device("cuda", place.local_rank)
        torch.cuda.set_device(device)
    store, _, _ = next(rendezvous("env://", timeout=timedelta(seconds=SETUP_S)))
    require_all_here(store, place)
    try:
        with watching(store):
            dist.init_process_group(
                "gloo", store=PrefixStore("groups", store), rank=place.rank,
                world_size=place.size, timeout=timedelta(seconds=SETUP_S),
            )  # fmt: skip
            ranks = Ranks(place, device, store)
        yield ranks
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def require_all_here(store: Any, place: Launched, wait_s: float = MEET_S) -> None:
    """Wait for the other ranks; raise if they are not as many as this one was started for.

    Raises:
        ConfigError: ranks were started for different numbers of them, or some never came.
    """
    said = store.compare_set("fourge/size", "", str(place.size)).decode()
    if said != str(place.size):
        store.set("fourge/other size", f"rank {place.rank} for {place.size}, another for {said}")
    store.add("fourge/here", 1)
    end, here = time.monotonic() + wait_s, 0
    while time.monotonic() < end and here < place.size:
        here = store.add("fourge/here", 0)  # counted after its size was said
        _refuse_other_size(store)
        time.sleep(0.02)
    if here < place.size:
        raise ConfigError(
            f"{here} of {place.size} ranks came within {wait_s:.0f} s.",
            fix="start torchrun on every machine, with the same --nnodes and rendezvous",
        )


def _refuse_other_size(store: Any) -> None:
    if store.check(["fourge/other size"]):
        raise ConfigError(
            "Ranks were started for different numbers of processes.",
            why=store.get("fourge/other size").decode(),
            fix="start every machine with the same --nnodes and --nproc-per-node",
        )
