"""A matplotlib drawing as inline SVG, coloured by the page.

matplotlib writes colours and fonts into each element. It is given placeholder colours here, and
those are replaced by CSS variables afterwards, so that one drawing is right in light, in dark and
on paper. Text stays text: it can be searched, read aloud, and shown in Chinese by the reader's own
fonts.
"""

import io
import re
import warnings
from collections.abc import Callable

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from fourge.report.markup import Markup, tag, together

_WIDTH, _POINTS = 5.6, 72  # inches; units of the SVG in one
COLOURS = 8  # of curves, in the page's style sheet
INK, GRID, ALARM = "#010101", "#020202", "#030303"
CURVE = tuple(f"#0401{number:02x}" for number in range(COLOURS))
_VARIABLES = {
    INK: "currentColor", GRID: "var(--grid)", ALARM: "var(--alarm)",
    **{colour: f"var(--curve-{number})" for number, colour in enumerate(CURVE)},
}  # fmt: skip
_STYLE = {
    "svg.fonttype": "none", "svg.hashsalt": "fourge", "font.size": 10,
    "figure.facecolor": "none", "axes.facecolor": "none", "text.color": INK,
    "axes.labelcolor": INK, "axes.edgecolor": GRID, "xtick.color": GRID, "ytick.color": GRID,
    "xtick.labelcolor": INK, "ytick.labelcolor": INK, "grid.color": GRID, "grid.linewidth": 0.6,
    "axes.spines.top": False, "axes.spines.right": False, "lines.linewidth": 1.4,
}  # fmt: skip
_NOT_INLINE = re.compile(
    r"<metadata>.*?</metadata>|<!--.*?-->|<defs>\s*<style.*?</style>\s*</defs>"
    r"|(?<=<g) id=\"[^\"]*\"|font-family: [^;\"]*; ?",
    re.DOTALL,
)


def drawn(
    name: str, title: str, about: str, draw: Callable[[Axes], None], height: float = 2.9
) -> Markup:
    """What ``draw`` draws. ``name`` is unique on the page; the height is in inches, of 5.6."""
    stream = io.StringIO()
    with rc_context(_STYLE), warnings.catch_warnings():
        # Only matplotlib's estimate of widths needs the glyphs; the reader's browser has them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        draw(figure.add_subplot())
        FigureCanvasSVG(figure).print_svg(stream, metadata={"Date": None})
    text = stream.getvalue()
    body = _inlined(text[text.index(">", text.index("<svg")) + 1 :], name)
    words = tag("title", title, id=f"{name}-title"), tag("desc", about, id=f"{name}-about")
    return Markup(
        f'<svg viewBox="0 0 {_WIDTH * _POINTS:.0f} {height * _POINTS:.0f}" role="img" '
        f'aria-labelledby="{name}-title {name}-about">{together(words)}{body}'
    )


def _inlined(body: str, name: str) -> str:
    """Without what only a file of its own needs, with ids that are unique on the page."""
    body = _NOT_INLINE.sub("", body)
    body = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{name}-", body)
    body = re.sub("(?<=: )#0[1-4]0[0-9a-f]{3}", lambda found: _VARIABLES[found[0]], body)
    return re.sub(r"\s*\n\s*", "\n", body)
