"""The plan as a picture: a stacked bar for each phase, and the limit as a line."""

from pathlib import Path

from fourge.core.picture import figure_for, write_figure
from fourge.core.units import size
from fourge.memory.limit import Limit
from fourge.memory.plan import PHASES, Plan

GIB = float(1 << 30)


def draw(plan: Plan, limit: Limit, path: Path, title: str) -> None:
    """Write the picture; the format is that of the path's suffix (.png, .svg, .pdf).

    Raises:
        ConfigError: matplotlib is missing, or does not write such files.
    """
    figure = figure_for(path)
    axes = figure.add_subplot()
    _bars(axes, plan)
    axes.axhline(limit.nbytes / GIB, color="black", linestyle="--",
                 label=f"limit {size(limit.nbytes)}")  # fmt: skip
    axes.set_ylim(top=1.05 * max(plan.peak, limit.nbytes) / GIB)
    axes.set_ylabel("GiB")
    axes.set_title(f"{title}: peak {size(plan.peak)} in {plan.peak_phase}")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    write_figure(figure, path)


def _bars(axes: object, plan: Plan) -> None:
    """One colour for each part; a part is at the same height order in every phase."""
    from matplotlib import colormaps

    below = dict.fromkeys(PHASES, 0.0)
    ordered = sorted(plan.lines, key=lambda line: (-len(line.phases), -line.nbytes))
    for index, line in enumerate(ordered):
        heights = [line.nbytes / GIB if phase in line.phases else 0.0 for phase in PHASES]
        axes.bar(  # type: ignore[attr-defined]
            PHASES, heights, bottom=list(below.values()), label=line.part,
            color=colormaps["tab20"](index % 20),
        )  # fmt: skip
        for phase, height in zip(PHASES, heights, strict=True):
            below[phase] += height
