"""From a run file, or from a model's name, to what the memory plan needs to know.

A run is planned at its largest: every sequence as long as ``data.max_tokens``, every token a
target, and padding, because sequences differ.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch

from fourge.config.run import Run
from fourge.core.crew import ALONE, Crew
from fourge.guard.sizes import parse_size
from fourge.memory.limit import Limit, machine_limit
from fourge.memory.machine import this_machine
from fourge.memory.plan import Plan, plan
from fourge.memory.wanted import Wanted
from fourge.model.build import LM_HEAD, loader_nbytes, untied_config
from fourge.model.shapes import SHAPES, shape_config
from fourge.model.source import Source, open_source
from fourge.model.swap import choose_device, training_dtype
from fourge.train.prepare import storage_dtype

BYTES_PER_TOKEN = 4  # of text in a data file: English has about that, with its JSON


def wanted_of_run(run: Run, *, taught_positions: int | None = None, world_size: int = 1) -> Wanted:
    """What a run file asks of one of so many processes.

    The data is not read: a held file's size stands for its tokens.

    Raises:
        FourgeError: the model cannot be opened.
    """
    device = choose_device(run.model.device)
    held = [entry.path for entry in run.data.mix if entry.learn != "answer"]
    if taught_positions is None:
        taught_positions = sum(path.stat().st_size for path in held) // BYTES_PER_TOKEN
    wanted = wanted_of_model(
        run.model.path, device=device.type, compute=run.model.compute_dtype,
        tokens=run.data.max_tokens, batch=-(-run.train.batch // world_size),
        padded=run.train.batch > world_size, world_size=world_size,
        scheme=run.model.scheme, keep=run.model.keep_bf16, master=run.optim.master,
        moments=run.optim.moments, recompute=run.train.recompute, release=run.train.release,
    )  # fmt: skip
    return replace(
        wanted,
        accumulate=run.train.accumulate,
        two_pass=run.optim.clip is not None and run.optim.clip_method == "two-pass",
        loss_chunk=run.train.loss_chunk,
        last_layers=run.train.last_layers,
        chunk_rows=run.optim.chunk_rows,
        taught_positions=taught_positions,
        top_k=run.train.kl_top_k,
    )


def wanted_of_model(model: str, *, device: str, compute: str = "auto", **settings: Any) -> Wanted:
    """What training a model or a named shape asks for; headers are read, weights are not."""
    dtype = training_dtype(compute, torch.device(device))
    if model in SHAPES:
        return Wanted(config=shape_config(model), device=device, compute=dtype, **settings)
    source = open_source(model)
    loader = loader_nbytes(source, storage_dtype(settings.get("master", "bf16")))
    return Wanted(config=_config(source), device=device, compute=dtype, loader=loader, **settings)


def limit_of_run(run: Run) -> Limit:
    """What a run may take on this machine now, by its memory and guard settings."""
    floor = None if run.guard.floor == "auto" else parse_size(run.guard.floor)
    return machine_limit(run.memory.limit_bytes, floor)


@dataclass(frozen=True, slots=True)
class Planned:
    """A run that fits."""

    plan: Plan
    limit: Limit

    def numbers(self) -> dict[str, Any]:
        """For the record; bytes."""
        return {
            "peak": self.plan.peak,
            "phase": self.plan.peak_phase,
            "phases": self.plan.phases,
            "limit": self.limit.nbytes,
            "limit_source": self.limit.source,
        }


def require_fits(run: Run, crew: Crew = ALONE) -> Planned:
    """Plan a run; raise unless it fits into what it may have.

    Raises:
        PlanError: it needs more than it may have.
    """
    made = plan(wanted_of_run(run, world_size=crew.size), this_machine())
    limit = limit_of_run(run)
    if crew.here > 1:
        source = f"{limit.source}; one of {crew.here} processes on this machine"
        limit = Limit(limit.nbytes // crew.here, source)
    made.require_fits(limit.nbytes)
    return Planned(made, limit)


def _config(source: Source) -> Any:
    """The config; untied if the file has a head of its own, which only reading could tell alike."""
    tied = source.config.tie_word_embeddings
    return untied_config(source.config) if tied and LM_HEAD in source.tensors else source.config
