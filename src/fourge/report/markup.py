"""HTML in which a text cannot become markup: plain strings are escaped wherever they are put."""

from collections.abc import Iterable, Sequence
from html import escape


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, *children: str, **attributes: str | None) -> Markup:
    """An element. ``class_`` is written class, ``aria_label`` aria-label; None is left out."""
    words = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{words}>{together(children)}</{name}>")


def together(children: Iterable[str]) -> Markup:
    """One after another."""
    return Markup(
        "".join(child if isinstance(child, Markup) else escape(child) for child in children)
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str) -> Markup:
    """A table that scrolls by itself, by keyboard too, where the page is too narrow for it."""
    body = [
        tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:]))
        for row in rows
    ]
    header = tag("tr", *(tag("th", cell, scope="col") for cell in head))
    inner = tag("table", tag("caption", caption), tag("thead", header), tag("tbody", *body))
    return tag("div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption)


def section(name: str, title: str, *children: str) -> Markup:
    """A part of the page that a link can point to."""
    return tag("section", tag("h2", title, id=f"{name}-title"), *children, id=name,
               aria_labelledby=f"{name}-title")  # fmt: skip


def details(name: str, summary: str, *children: str) -> Markup:
    """What is there for whoever opens it; the name lets a page that updates keep it open."""
    return tag("details", tag("summary", summary), *children, id=name)
