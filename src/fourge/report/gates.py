"""Gates before and after, with intervals, and the answers that did not pass.

A gate counts right answers, so its share has the interval of a binomial: Wilson's, at 90 %,
which stays inside 0 to 1 and does not shrink to a point at 100 %. With k right of n and z = 1.645:

    (k + z^2/2 +- z sqrt(k (n - k) / n + z^2/4)) / (n + z^2)

The interval that decides is that of the paired difference, which the gate's own note says.
"""

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from fourge.report.drawing import CURVE, drawn
from fourge.report.markup import Markup, details, table, tag
from fourge.report.record import Event, number
from fourge.report.status import gates_of

Z = 1.6448536269514722
_NOTHING_AGAINST = "A sample of the items: nothing in it speaks against the model beyond chance."


def wilson(share: float, items: int) -> tuple[float, float]:
    """The interval of a share of so many items."""
    right, square = share * items, Z * Z
    middle = right + square / 2
    half = Z * math.sqrt(max(0.0, right * (items - right) / items) + square / 4)
    return max(0.0, (middle - half) / (items + square)), min(
        1.0, (middle + half) / (items + square)
    )


def verdict(event: Event, name: str) -> Markup:
    """The gates of one verdict: chart, table, failures."""
    gates = gates_of(event)
    head = "gate", "decision", "items", "base", "tuned", "needed", "note"
    columns = [column for column in zip(head, *map(_row, gates), strict=True) if any(column[1:])]
    head, *rows = zip(*columns, strict=True) if columns else [head]
    title = title_of("Gates", event)
    said = str(event.get("reason") or "") or (_NOTHING_AGAINST if is_sample(event) else "")
    reason = tag("p", said) if said else Markup("")
    return tag("div", _chart(gates, name, title), reason, table(head, rows, title),
               _failures(event, name))  # fmt: skip


def is_sample(event: Event) -> bool:
    """Whether a verdict is about some of the items only: enough to speak against a model."""
    return event.get("of") in ("look", "transformers")


def title_of(what: str, event: Event) -> str:
    """With the name of what was judged, where it has one."""
    names = [str(event[key]) for key in ("stage", "name", "of") if event.get(key)]
    return f"{what}: {', '.join(names)}" if names else what


def _row(gate: dict[str, Any]) -> list[str]:
    decision = str(gate.get("decision", ""))
    word = tag("span", decision, class_=f"word {decision}" if decision.isalpha() else "word")
    numbers = [_written(gate, "base"), _written(gate, "tuned")]
    rest = [str(gate.get(key) or "") for key in ("needed", "note")]
    return [str(gate.get("name", "")), word, str(gate.get("items", "")), *numbers, *rest]


def _written(gate: dict[str, Any], key: str) -> str:
    value = number(gate.get(key))
    if math.isnan(value):
        return ""
    if not _is_share(gate):
        return f"{value:.4g}"
    if (interval := _interval(gate, value)) is None:
        return f"{value:.1%}"
    low, high = interval
    return tag("span", f"{value:.1%} ({low:.1%} to {high:.1%})", class_="whole")


def _is_share(gate: dict[str, Any]) -> bool:
    """Perplexities are not."""
    return all(0 <= number(gate.get(key), 0.0) <= 1 for key in ("base", "tuned"))


def _interval(gate: dict[str, Any], value: float) -> tuple[float, float] | None:
    """None where it is not known of how many items."""
    items = int(number(gate.get("items"), 0))
    return wilson(value, items) if items >= 1 else None


def _chart(gates: list[dict[str, Any]], name: str, title: str) -> Markup:
    shares = [gate for gate in gates if _is_share(gate)]
    if not shares:
        return Markup("")
    about = "Shares of right answers, base and tuned, with 90 % intervals; the table has them."
    drawing = drawn(name, title, about, lambda axes: _draw(axes, shares), 0.9 + 0.4 * len(shares))
    legend = [tag("span", tag("i", class_=f"key curve-{curve}"), label)
              for curve, label in enumerate(("base", "tuned"))]  # fmt: skip
    caption = tag("figcaption", tag("span", title, class_="title"),
                  tag("span", *legend, class_="legend"))  # fmt: skip
    return tag("figure", caption, drawing, id=name)


def _draw(axes: Axes, gates: list[dict[str, Any]]) -> None:
    for curve, (key, shift) in enumerate((("base", -0.14), ("tuned", 0.14))):
        for at, gate in enumerate(gates):
            value = number(gate.get(key))
            if math.isfinite(value):
                ends = _interval(gate, value) or (value, value)
                axes.plot(ends, [at + shift] * 2, color=CURVE[curve])
                axes.plot([value], [at + shift], "o", markersize=5, color=CURVE[curve])
    axes.set_yticks(range(len(gates)), [str(gate.get("name", "")) for gate in gates])
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(axis="x")


def _failures(event: Event, name: str) -> Markup:
    failures = event.get("failures")
    rows = [
        [str(each.get(key, "")) for key in ("gate", "prompt", "answer", "why")]
        for each in (failures if isinstance(failures, list) else [])
        if isinstance(each, dict)
    ]
    if not rows:
        return Markup("")
    head = "gate", "prompt", "answer", "why"
    return details(f"{name}-failures", f"Answers that did not pass: {len(rows)}",
                   table(head, rows, "Answers that did not pass"))  # fmt: skip
