"""Pictures, for those who have matplotlib: the extra ``pictures`` of the installation.

A figure is asked for before the work whose result it shows, so that what is missing is missed then.
"""

from pathlib import Path
from typing import Any

from fourge.core.errors import ConfigError
from fourge.core.files import whole_file


def figure_for(path: Path, inches: tuple[float, float] = (9, 5.5)) -> Any:
    """An empty matplotlib figure that can be written to a path of this suffix.

    Raises:
        ConfigError: matplotlib is missing, or does not write such files.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(
            "Pictures need matplotlib, which is not installed.",
            fix="pip install 'fourge[pictures]', or pip install matplotlib",
        ) from error
    figure = Figure(figsize=inches, layout="constrained")
    if _form(path) not in figure.canvas.get_supported_filetypes():
        raise ConfigError(f"{path} is not a picture's name.", fix="end it in .png, .svg or .pdf")
    return figure


def write_figure(figure: Any, path: Path) -> None:
    """Write it whole, in place of an older one; an .svg of the same figure has the same bytes."""
    from matplotlib import rc_context

    undated = {"Date": None} if _form(path) == "svg" else None
    with whole_file(path, overwrite=True) as temporary, rc_context({"svg.hashsalt": "fourge"}):
        figure.savefig(temporary, format=_form(path), dpi=120, metadata=undated)


def _form(path: Path) -> str:
    return path.suffix.removeprefix(".").lower()
