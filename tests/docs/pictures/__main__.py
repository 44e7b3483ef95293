"""``python -m tests.docs.pictures [NAME...]``: draw all pictures, or some."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fourge.core.picture import figure_for, write_figure
from tests.docs.pictures import gates, guard, moments, nvfp4, plan, release, replay, stochastic
from tests.documents import ROOT

FOLDER = ROOT / "docs" / "pictures"
PICTURES: dict[str, Callable[[Any], None]] = {
    "nvfp4": nvfp4.draw,
    "stochastic-rounding": stochastic.draw,
    "packed-moments": moments.draw,
    "release": release.draw,
    "plan": plan.draw,
    "guard": guard.draw,
    "kl-replay": replay.draw,
    "gates": gates.draw,
}


def main(names: list[str], folder: Path = FOLDER) -> None:
    for name in names or PICTURES:
        path = folder / f"{name}.svg"
        figure = figure_for(path, (9, 3.9))
        PICTURES[name](figure)
        write_figure(figure, path)


if __name__ == "__main__":
    main(sys.argv[1:])
