"""Gates: what pairs of right and wrong answers let us say, and how many it takes."""

from typing import Any, NamedTuple

from fourge.evaluate.paired import Paired, compare, interval, items_needed, not_worse
from tests.docs.pictures import paper

MARGIN = 0.05
COLOUR = {"pass": paper.GREEN, "undecided": paper.ORANGE, "fail": paper.RED}
MOST = 400


class Case(NamedTuple):
    """So many items, of which the base alone, and the tuned model alone, get some right."""

    items: int
    base_only: int
    tuned_only: int

    def paired(self) -> Paired:
        both = self.items - self.base_only - self.tuned_only
        base = [True] * (both + self.base_only) + [False] * self.tuned_only
        tuned = [True] * both + [False] * self.base_only + [True] * self.tuned_only
        return compare(base, tuned)

    def title(self) -> str:
        return f"{self.items} items: {self.base_only} lost, {self.tuned_only} gained"


CASES = (
    Case(20, 0, 0), Case(113, 0, 0), Case(113, 3, 2), Case(113, 8, 5), Case(400, 28, 18),
    Case(113, 12, 1), Case(113, 9, 3),
)  # fmt: skip


def low_end(share: float, items: int) -> float:
    """The lower end of the interval if this share of the items is lost and as many are gained."""
    each = round(share * items / 2)
    return interval(each, each, items)[0]


def draw(figure: Any) -> None:
    cases, needed = figure.subplots(1, 2, width_ratios=(1.25, 1))
    _draw_cases(cases)
    _draw_needed(needed)


def _draw_cases(axes: Any) -> None:
    for at, case in enumerate(CASES):
        found = case.paired()
        decision = not_worse(found, MARGIN)
        axes.plot([found.low * 100, found.high * 100], [at, at], color=COLOUR[decision],
                  linewidth=3, solid_capstyle="butt")  # fmt: skip
        axes.plot(found.difference * 100, at, "o", markersize=5, color=paper.INK)
        axes.text(15.5, at, decision, fontsize=8.5, va="center", color=COLOUR[decision])
    axes.axvline(-MARGIN * 100, color=paper.INK, linestyle="--", linewidth=1)
    axes.axvline(0, color=paper.FAINT, linewidth=0.8)
    axes.set_yticks(range(len(CASES)), [case.title() for case in CASES])
    axes.invert_yaxis()
    axes.set_xlim(-21, 15)
    paper.plain(axes, "Is the whole bar right of the line?", "tuned less base, points")


def _draw_needed(axes: Any) -> None:
    items = range(40, MOST + 1, 40)  # whole numbers of items are lost and gained
    for share, colour in ((0.0, paper.GREEN), (0.05, paper.BLUE), (0.10, paper.ORANGE)):
        lows = [low_end(share, count) * 100 for count in items]
        axes.plot(items, lows, ".-", color=colour, label=f"{share:.0%} of the answers differ")
    axes.axhline(-MARGIN * 100, color=paper.INK, linestyle="--", linewidth=1)
    agreeing = items_needed(Case(MOST, 0, 0).paired(), MARGIN)
    axes.plot(agreeing, -MARGIN * 100, "o", color=paper.GREEN, label=f"{agreeing} do if all agree")
    axes.set_ylim(-13, 0)
    paper.plain(axes, "As many lost as gained", "items", "lower end of the bar, points")
    paper.legend(axes, loc="lower right")
