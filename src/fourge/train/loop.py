"""The training loop, as an iterator of finished steps.

It does not log, save, evaluate or stop: whoever pulls it does, between steps, in plain code. A
step is a pure function of the weights, the optimizer's state and the step's number, so a run can
be taken up again at any step and goes on as it would have.

Precision: the loss and its sums are float32; gradients have the dtype of the master weight, and
accumulate in it (without release); the update is float32 and rounded to the master's form.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fourge.core.crew import ALONE, Crew
from fourge.core.process import peak_bytes, reset_peak
from fourge.data.batch import Batch
from fourge.optim.adamw import AdamW
from fourge.optim.schedule import Schedule
from fourge.train.budget import next_weight
from fourge.train.codes import CodeWatch, Samples, code_samples
from fourge.train.loss import Loss, Teacher, Weights
from fourge.train.resting import resting
from fourge.train.step import batch_loss, require_finite_loss

TeacherOf = Callable[[Batch], Teacher]


@dataclass(frozen=True, slots=True)
class Engine:
    """Who computes a step, and how: by default this process, with the model as it is.

    Every number of a step is a sum over the crew, each of whom has some rows of every batch.
    """

    crew: Crew = ALONE
    loss: Callable[..., Loss] = batch_loss
    code_samples: Samples = code_samples


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step did. Losses are means, in nats, over the step's own positions."""

    step: int
    loss: float  # what was minimised
    target_loss: float | None  # cross entropy; None without targets
    kl: float | None  # to the base model; None without a teacher
    kl_weight: float  # what it counts in the step after this one
    lr: float
    grad_norm: float  # before clipping
    moved: float  # share of the weights that are not what they were
    codes_changed: float | None  # share of NVFP4 codes, since the forward pass before
    tokens: int
    targets: int
    seconds: float
    peak: dict[str, int] = field(default_factory=dict)  # bytes, by phase

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / max(self.seconds, 1e-9)


@dataclass(frozen=True, slots=True)
class Plan:
    """How the steps of a run are made. ``batches(step)`` gives the micro-batches of one."""

    batches: Callable[[int], list[Batch]]
    schedule: Schedule
    release: bool = True
    chunk: int | None = None
    kl_weight: float = 0.0  # at the start
    kl_budget: float | None = None  # then the weight follows it
    teacher: TeacherOf | None = None
    engine: Engine = Engine()


class Stopped(Exception):  # noqa: N818 (nothing went wrong)
    """Asked to stop, at a micro-step: the weights are those of the last finished step."""


def steps(
    model: Any,
    optimizer: AdamW,
    plan: Plan,
    *,
    first: int = 1,
    kl_weight: float | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[StepResult]:
    """Train from step ``first`` to the schedule's last and yield what happened.

    ``kl_weight`` is that of the last result, where a run goes on.

    Raises:
        DivergedError: a loss or a gradient is not finite.
        Stopped: ``should_stop`` said so.
    """
    codes = CodeWatch(model, plan.engine.code_samples)
    weight = plan.kl_weight if kl_weight is None else kl_weight
    base_lr = [group.setdefault("initial_lr", group["lr"]) for group in optimizer.param_groups]
    for step in range(first, plan.schedule.steps + 1):
        factor = plan.schedule.factor(step)
        for group, lr in zip(optimizer.param_groups, base_lr, strict=True):
            group["lr"] = lr * factor
        rate = optimizer.defaults["lr"] * factor  # of what has no rate of its own
        with resting(model, optimizer, step):
            result = _step(model, optimizer, plan, step, rate, weight, codes, should_stop)
        weight = result.kl_weight
        yield result


def _step(
    model: Any,
    optimizer: AdamW,
    plan: Plan,
    step: int,
    rate: float,
    kl_weight: float,
    codes: CodeWatch,
    should_stop: Callable[[], bool],
) -> StepResult:
    start, peak, crew = time.perf_counter(), dict[str, int](), plan.engine.crew
    micro = [(batch, plan.teacher(batch) if plan.teacher else None) for batch in plan.batches(step)]
    held = sum(int(teacher.has_T.sum()) for _, teacher in micro if teacher is not None)
    wanted = [sum(batch.targets for batch, _ in micro) - held, held]
    targets, taught = (int(count) for count in crew.sums(wanted))
    weights = Weights(1 / max(targets, 1), kl_weight / max(taught, 1))
    losses: list[Loss] = []
    changed, total = (0.0, 0), 0.0
    for batch, teacher in micro:
        if should_stop():
            optimizer.zero_grad()
            raise Stopped
        reset_peak()
        loss = plan.engine.loss(model, batch, weights, teacher=teacher, chunk=plan.chunk,
                                backward_twice=optimizer.takes_two_passes)  # fmt: skip
        (value,) = crew.sums([loss.total.item()])
        require_finite_loss(value, step, ", ".join(batch.source), rate)
        changed = changed if losses else codes.counts()
        peak["forward"] = max(peak.get("forward", 0), peak_bytes())
        reset_peak()
        _backward(optimizer, loss, release=plan.release)
        peak["backward"] = max(peak.get("backward", 0), peak_bytes())
        losses.append(loss)
        total += value
    if not plan.release:
        reset_peak()
        optimizer.step()
        optimizer.zero_grad()
        peak["update"] = peak_bytes()
    target_sum, teacher_sum, tokens, *counts = crew.sums([
        sum(loss.target_sum.item() for loss in losses),
        sum(loss.teacher_sum.item() for loss in losses),
        sum(batch.tokens for batch, _ in micro),
        *optimizer.moved.counts, *changed,
    ])  # fmt: skip
    kl = _mean(teacher_sum, taught)
    return StepResult(
        step=step,
        loss=total,
        target_loss=_mean(target_sum, targets),
        kl=kl,
        kl_weight=next_weight(kl_weight, kl, plan.kl_budget, plan.kl_weight),
        lr=rate,
        grad_norm=optimizer.grad_norm,
        moved=_mean(counts[0], counts[1]) or 0.0,
        codes_changed=_mean(counts[2], counts[3]),
        tokens=int(tokens),
        targets=targets + taught,
        seconds=time.perf_counter() - start,
        peak=peak,
    )


def _backward(optimizer: AdamW, loss: Loss, *, release: bool) -> None:
    if release:
        optimizer.backward(loss.total)
    else:
        loss.total.backward()


def _mean(total: float, count: float) -> float | None:
    return total / count if count else None
