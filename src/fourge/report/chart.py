"""A chart: curves over steps or minutes, with what happened meanwhile marked.

Names of curves are not in the drawing but in the legend above it, and the numbers are in a table
behind it, for whoever cannot see the curve. A long curve is thinned to its extremes (``thin.py``),
and the caption says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator, PercentFormatter

from fourge.report.drawing import ALARM, COLOURS, CURVE, INK, drawn
from fourge.report.markup import Markup, details, table, tag
from fourge.report.thin import is_long, means, spread, thinned

_TABLE_ROWS = 40


@dataclass(frozen=True, slots=True)
class Line:
    label: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at ``x``: a vertical line, listed under the chart."""

    x: float
    label: str
    alarm: bool = False


@dataclass(frozen=True, slots=True)
class Level:
    """A value not to be passed: a horizontal line with its name."""

    y: float
    label: str


@dataclass(frozen=True, slots=True)
class Chart:
    """``name`` is unique on the page."""

    name: str
    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    marks: tuple[Mark, ...] = ()
    levels: tuple[Level, ...] = ()
    log: bool = False
    share: bool = False


def figure(chart: Chart) -> Markup:
    """The drawing, its legend, what was left out, and the numbers."""
    parts = [tag("span", chart.title, class_="title"), _legend(chart)]
    longest = max((line.y for line in chart.lines), key=len, default=())
    if is_long(longest):
        parts.append(tag("small", f"{len(thinned(longest)):,} of {len(longest):,} points drawn: "
                         "the lowest and the highest of each stretch, and its mean"))  # fmt: skip
    drawing = drawn(chart.name, chart.title, _described(chart), lambda axes: _draw(axes, chart))
    return tag("figure", tag("figcaption", *parts), drawing, _marks(chart), _numbers(chart),
               id=chart.name)  # fmt: skip


def _draw(axes: Axes, chart: Chart) -> None:
    for number, line in enumerate(chart.lines):
        _curve(axes, line, CURVE[number % COLOURS], "-" if number < COLOURS else "--")
    for mark in chart.marks:
        axes.axvline(mark.x, color=ALARM if mark.alarm else INK, linewidth=1, linestyle=":")
    for level in chart.levels:
        axes.axhline(level.y, color=ALARM, linewidth=1, linestyle="--")
        axes.annotate(level.label, (1, level.y), xycoords=("axes fraction", "data"), ha="right",
                      va="bottom", fontsize=9)  # fmt: skip
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    if chart.log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if chart.share:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))


def _curve(axes: Axes, line: Line, colour: str, style: str) -> None:
    """A short curve as it is; a long one as its means, in the band of its extremes."""
    kept = thinned(line.y)
    points = [line.x[at] for at in kept], [line.y[at] for at in kept]
    marker = "." if len(kept) == 1 else None
    if is_long(line.y):
        axes.plot(*points, linewidth=0.8, alpha=0.35, color=colour)
        points = means(line.x, line.y)
    axes.plot(*points, style, color=colour, marker=marker)


def _described(chart: Chart) -> str:
    """What the curves do, in words."""
    return " ".join(_course(line, chart) for line in chart.lines if len(line.y))


def _course(line: Line, chart: Chart) -> str:
    rows = range(len(line.y))
    low, high = min(rows, key=line.y.__getitem__), max(rows, key=line.y.__getitem__)
    return (
        f"{line.label}: from {line.y[0]:.4g} to {line.y[-1]:.4g}, lowest {line.y[low]:.4g} at "
        f"{chart.x_label} {line.x[low]:,g}, highest {line.y[high]:.4g} at {line.x[high]:,g}."
    )


def _legend(chart: Chart) -> Markup:
    if len(chart.lines) == 1 and chart.lines[0].label == chart.title:
        return Markup("")
    keys = [
        tag("span", tag("i", class_=f"key curve-{number % COLOURS}"), line.label)
        for number, line in enumerate(chart.lines)
    ]
    return tag("span", *keys, class_="legend")


def _marks(chart: Chart) -> Markup:
    if not chart.marks:
        return Markup("")
    lines = [f"{chart.x_label} {mark.x:,.6g}: {mark.label}" for mark in chart.marks]
    return details(f"{chart.name}-marks", f"{len(lines)} marked",
                   tag("ul", *(tag("li", line) for line in lines)))  # fmt: skip


def _numbers(chart: Chart) -> Markup:
    """The curves in words, and some of their points."""
    words = tag("p", _described(chart))
    rows = []
    for line in chart.lines:
        for at in spread(len(line.x), _TABLE_ROWS // len(chart.lines) + 1):
            rows.append((line.label, f"{line.x[at]:,g}", f"{line.y[at]:.6g}"))
    head = "curve", chart.x_label, chart.y_label
    return details(f"{chart.name}-numbers", "numbers", words, table(head, rows, chart.title))
