"""From a run file to everything a run needs, cheapest checks first.

Nothing heavy happens before all that can be refused has been: the folder, the model's headers,
its tokenizer, every line of data. Then weights are loaded, the base model is asked for what is to
be held (``train.teacher``), and the model is put into its training form.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fourge.checkpoint.store import CHECKPOINTS
from fourge.config.run import Run
from fourge.core.crew import ALONE, Crew
from fourge.core.errors import ConfigError
from fourge.core.process import trim_heap
from fourge.data.batch import Batch
from fourge.data.dataset import Dataset, open_dataset
from fourge.model.build import empty_model, load_model, untied
from fourge.model.calibration import calibrate_
from fourge.model.digest import digest_of_weights
from fourge.model.mixed import activation_dtype, compute_in_
from fourge.model.source import Source, open_source
from fourge.model.swap import choose_device, training_dtype
from fourge.optim.adamw import AdamW, ClipMethod
from fourge.optim.groups import GroupRule, grouped
from fourge.optim.part import Part, whole
from fourge.optim.schedule import Schedule, warmup_steps
from fourge.train.loop import Engine, Plan
from fourge.train.prepare import (
    freeze_but_last_,
    prepare_,
    require_trainable,
    storage_dtype,
    trained_parameters,
)
from fourge.train.teacher import TeacherCache, ask_base, cache_name, require_top_k

Progress = Callable[[str, int, int], None]  # what, done, of how many


@dataclass(frozen=True, slots=True)
class Checked:
    """A run whose model and data were read and found good; no weight is loaded."""

    run: Run
    source: Source
    dataset: Dataset
    steps: int


@dataclass(frozen=True, slots=True)
class Ready:
    """A run that can begin."""

    checked: Checked
    model: Any
    optimizer: AdamW
    plan: Plan
    base_digest: str
    compute_dtype: str
    crew: Crew = ALONE


def check(run: Run, progress: Progress) -> Checked:
    """Refuse what can be refused without loading a weight.

    Raises:
        FourgeError: the model, its tokenizer, the data or the settings cannot be.
    """
    source = open_source(run.model.path)
    dataset = open_dataset(
        [(entry.path, entry.weight) for entry in run.data.mix],
        source.tokenizer(),
        max_tokens=run.data.max_tokens,
        seed=run.train.seed,
        shuffle=run.data.order == "random",
        alone=[number for number, entry in enumerate(run.data.mix) if entry.learn == "alone"],
        template_arguments=run.data.template,
        progress=lambda done, total: progress("reading data", done, total),
    )
    steps = run.train.steps
    if steps is None:
        assert run.train.epochs is not None, "the run file has one of the two"
        per_step = run.train.batch * run.train.accumulate
        steps = max(1, ceil(run.train.epochs * dataset.mixture.epoch_size / per_step))
    schedule_of(run, steps)
    choose_device(run.model.device)
    _check_model(run, source, dataset)
    return Checked(run, source, dataset, steps)


def _check_model(run: Run, source: Source, dataset: Dataset) -> None:
    """What the settings ask of the model, asked of one without weights."""
    model = empty_model(untied(source).config, torch.bfloat16)
    scheme = run.model.scheme
    require_trainable(
        model, scheme=scheme, keep=run.model.keep_bf16, master=run.optim.master,
        last_layers=run.train.last_layers,
    )  # fmt: skip
    if run.train.last_layers is not None:
        freeze_but_last_(model, run.train.last_layers)
    grouped([(n, p) for n, p in model.named_parameters() if p.requires_grad], _rules(run))
    if run.train.kl_to_base:
        require_top_k(run.train.kl_top_k, model.config.vocab_size)
    positions = getattr(model.config, "max_position_embeddings", None)
    if positions and dataset.max_length > positions:
        raise ConfigError(
            f"A row has {dataset.max_length} tokens; the model has {positions} positions.",
            fix=f"set data.max_tokens to {positions} or less",
        )


def make_ready(
    checked: Checked, progress: Progress, crew: Crew = ALONE, dtype: torch.dtype | None = None
) -> Ready:
    """Load the model and put it, the optimizer and the plan together.

    What is computed in is by default what the run says; a run that goes on may know better.
    """
    run = checked.run
    if crew.size > 1:
        _require_awake(run)
    device = choose_device(run.model.device)
    dtype = dtype or training_dtype(run.model.compute_dtype, device)
    done, total = 0, len(checked.source.tensors)

    def loaded(name: str) -> None:
        nonlocal done
        done += 1
        progress("loading the model", done, total)

    model = load_model(
        checked.source, dtype=storage_dtype(run.optim.master), device=device,
        backend=run.model.backend, progress=loaded,
    )  # fmt: skip
    base_digest = digest_of_weights(model)
    is_dense, teacher = run.train.kl_teacher == "dense", None
    if is_dense:
        compute_in_(model, dtype)
        teacher = _teacher(checked, model, base_digest, progress)
    named = prepare_(
        model, scheme=run.model.scheme, keep=run.model.keep_bf16, backend=run.model.backend,
        master=run.optim.master, compute_dtype=dtype, last_layers=run.train.last_layers,
        recompute=run.train.recompute,
    )  # fmt: skip
    if run.model.scheme == "w4a4":
        calibrate_(model, checked.source)
    if not is_dense:
        teacher = _teacher(checked, model, base_digest, progress)
    engine = Engine()
    part_of: Callable[[Tensor], Part] = whole
    if crew.size > 1:
        from fourge.shard.engine import sharded_  # torch.distributed, which one process never loads

        engine, part_of = sharded_(model, crew, compute=dtype)
        named = trained_parameters(model)
    optimizer = _optimizer(run, named, crew, part_of)
    optimizer.allocate()
    trim_heap()
    plan = _plan(checked, teacher, engine)
    return Ready(checked, model, optimizer, plan, base_digest, str(dtype).split(".")[-1], crew)


def schedule_of(run: Run, steps: int) -> Schedule:
    warmup = warmup_steps(run.optim.warmup, steps)
    return Schedule(run.optim.schedule, steps, warmup, run.optim.final_lr)


def _plan(checked: Checked, teacher: TeacherCache | None, engine: Engine) -> Plan:
    run, dataset, crew = checked.run, checked.dataset, engine.crew
    micro = run.train.accumulate

    def batches(step: int) -> list[Batch]:
        first = (step - 1) * micro
        whole_ones = (dataset.batch(first + i, run.train.batch) for i in range(micro))
        return [batch.part(crew.rank, crew.size) for batch in whole_ones]

    return Plan(
        batches=batches,
        schedule=schedule_of(run, checked.steps),
        release=run.train.release,
        chunk=run.train.loss_chunk,
        kl_weight=run.train.kl_to_base,
        kl_budget=run.train.kl_budget,
        teacher=None if teacher is None else teacher.of,
        engine=engine,
    )


def _optimizer(
    run: Run, named: list[tuple[str, Tensor]], crew: Crew, part_of: Callable[[Tensor], Part]
) -> AdamW:
    o = run.optim
    method: ClipMethod = "two-pass" if o.clip_method == "two-pass" else "tensor"
    return AdamW(
        grouped(named, _rules(run)), lr=o.lr, betas=(o.beta1, o.beta2), eps=o.eps,
        weight_decay=o.weight_decay, master=o.master, moments=o.moments, clip=o.clip,
        clip_method=method, chunk_rows=o.chunk_rows, seed=run.train.seed, crew=crew,
        part_of=part_of,
    )  # fmt: skip


def _require_awake(run: Run) -> None:
    if any(group.every > 1 for group in run.optim.groups):
        raise ConfigError(
            "optim.groups has every, and several processes train together.",
            why="sharded layers expect a gradient in each step",
            fix="leave every out, or train in one process",
        )


def _rules(run: Run) -> list[GroupRule]:
    return [
        GroupRule(tuple(g.names), g.lr, g.weight_decay, g.lower, g.every if g.every > 1 else None)
        for g in run.optim.groups
    ]


def _teacher(
    checked: Checked, model: Any, base_digest: str, progress: Progress
) -> TeacherCache | None:
    """What the model, in the form that it has now, says to the rows that are held to it."""
    run = checked.run
    held = {i for i, entry in enumerate(run.data.mix) if entry.learn != "answer"}
    draws = checked.steps * run.train.batch * run.train.accumulate
    rows = [row for row in checked.dataset.drawn(draws) if row[0] in held]
    if not rows:
        return None
    top_k, form = run.train.kl_top_k, "dense"
    if run.train.kl_teacher == "nvfp4":
        form = f"{run.model.scheme} {sorted(run.model.keep_bf16)}"
    weights = f"{base_digest} {form} {activation_dtype(model)}"
    path = run.out / cache_name(weights, checked.dataset, rows, top_k)
    if path.exists():
        return TeacherCache.load(path, top_k)
    cache = ask_base(
        model, checked.dataset, rows, top_k,
        progress=lambda done, total: progress("asking the base model", done, total),
    )  # fmt: skip
    cache.save(path)
    return cache


def checkpoint_folder(run: Run) -> Path:
    return run.out / CHECKPOINTS
