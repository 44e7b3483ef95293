"""Which charts a run has: those of its numbers that were recorded.

Over steps: the losses, KL and its weight, the learning rate, the gradient's norm, the share of
weights and of codes that changed, the speed. Over minutes: the peak memory of each phase against
the plan and the limit, and the machine's headroom as the guard saw it. Vertical lines mark where
a run was resumed and where its guard acted.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fourge.report.chart import Chart, Level, Line, Mark
from fourge.report.record import PEAK, Event, Record, number

GIB, MIB_IN_GIB = 1 << 30, 1 << 10


@dataclass(frozen=True, slots=True)
class Quantity:
    """One chart over steps: (column, its label) of each curve."""

    name: str
    title: str
    unit: str
    columns: tuple[tuple[str, str], ...]
    log: bool = False
    share: bool = False


QUANTITIES = (
    Quantity("loss", "Loss", "nats", (("loss", "minimised"), ("target_loss", "of the targets"))),
    Quantity("kl", "KL to the base model", "nats", (("kl", "KL to the base model"),)),
    Quantity("kl-weight", "Weight of the KL", "weight", (("kl_weight", "Weight of the KL"),)),
    Quantity("lr", "Learning rate", "rate", (("lr", "Learning rate"),)),
    Quantity("norm", "Gradient norm", "norm", (("grad_norm", "Gradient norm"),), log=True),
    Quantity("moved", "Share of weights that moved", "share", (("moved", "weights"),), share=True),
    Quantity("codes", "Share of NVFP4 codes that changed", "share", (("codes_changed", "codes"),),
             share=True),
    Quantity("speed", "Tokens per second", "tokens/s", (("tokens_per_s", "Tokens per second"),)),
)  # fmt: skip


def step_charts(record: Record, prefix: str) -> list[Chart]:
    """Over steps, of one run."""
    return [
        chart
        for each in QUANTITIES
        if (chart := _over_steps(each, prefix, _lines(record, each.columns), resumed(record)))
    ]


def compared_charts(records: Sequence[Record]) -> list[Chart]:
    """Over steps, one curve a run."""
    charts = []
    for each in QUANTITIES:
        column = each.columns[0][0]
        lines = [line for run in records for line in _lines(run, ((column, run.name),))]
        charts.append(_over_steps(each, "compared", lines, ()))
    return [chart for chart in charts if chart]


def _lines(record: Record, columns: Sequence[tuple[str, str]]) -> list[Line]:
    lines = [Line(label, *record.steps.points("step", column)) for column, label in columns]
    return [line for line in lines if len(line.y)]


def _over_steps(
    each: Quantity, prefix: str, lines: Sequence[Line], marks: Sequence[Mark]
) -> Chart | None:
    if not lines:
        return None
    log = each.log and all(value > 0 for line in lines for value in line.y)
    return Chart(f"{prefix}-{each.name}", each.title, "step", each.unit, tuple(lines),
                 tuple(marks), log=log, share=each.share)  # fmt: skip


def resumed(record: Record) -> list[Mark]:
    """Where the run went on after a stop."""
    firsts = [number(event.get("first")) for event in record.of("started")[1:]]
    return [Mark(first - 0.5, "resumed") for first in firsts if math.isfinite(first)]


def memory_charts(record: Record, prefix: str) -> list[Chart]:
    """Over minutes: what the process held, and what the machine had left."""
    marks, levels = guard_marks(record), _levels(record)
    phases = [name for name in record.steps.names() if name.startswith(PEAK)]
    held = [
        _minutes(record, name.removeprefix(PEAK), *record.steps.points("t", name), GIB)
        for name in phases
    ]
    left = [
        _minutes(record, label, *record.samples.points("t", column), MIB_IN_GIB)
        for column, label in (("left_mib", "left"), ("headroom_mib", "to the guard's line"))
    ]
    charts: tuple[tuple[str, str, list[Line], list[Level]], ...] = (
        ("held", "Peak memory of the process, by phase", held, levels),
        ("left", "Memory left on the machine, as the guard saw it", left, []),
    )
    return [
        Chart(f"{prefix}-{name}", title, "minute", "GiB", shown, tuple(marks), tuple(at))
        for name, title, lines, at in charts
        if (shown := tuple(line for line in lines if len(line.y)))
    ]


def _minutes(
    record: Record, label: str, times: Sequence[float], values: Sequence[float], unit: float
) -> Line:
    began = record.began_at
    return Line(label, [(at - began) / 60 for at in times], [value / unit for value in values])


def _levels(record: Record) -> list[Level]:
    told = [event["limits"] for event in record.guard if isinstance(event.get("limits"), dict)]
    limits, planned = told[-1] if told else {}, record.last("planned")
    named = {
        "planned peak": planned.get("peak"),
        "planned limit": planned.get("limit"),
        "guard's limit": limits.get("limit"),
    }
    return [
        Level(at / GIB, label)
        for label, value in named.items()
        if math.isfinite(at := number(value))
    ]


def guard_acts(record: Record) -> list[Event]:
    """What the guard did, beyond watching."""
    return [event for event in record.guard if event.get("kind") not in ("start", "end")]


def guard_marks(record: Record) -> list[Mark]:
    began = record.began_at
    return [
        Mark((at - began) / 60, f"guard: {event.get('kind')} {event.get('reason') or ''}".strip(),
             alarm=True)
        for event in guard_acts(record)
        if math.isfinite(at := number(event.get("t")))
    ]  # fmt: skip
