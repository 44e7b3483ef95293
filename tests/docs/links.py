"""Links and headings of Markdown files, as the code host and the site generator both read them.

What stands in code (fences, spans) is no link and no heading. An anchor is made from a heading as
both readers make it: lower case, punctuation dropped, a hyphen for each space. Of equal headings
the first alone can be linked to: the two readers name the others differently.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from posixpath import normpath

from tests.documents import ROOT

_FENCE = r"^ *(?P<fence>```+|~~~+).*?^ *(?P=fence) *$"
_SPAN = r"(?<!`)(?P<ticks>`+)(?!`)(?:(?!\n\n).)*?(?<!`)(?P=ticks)(?!`)"
_FENCES = re.compile(_FENCE, re.MULTILINE | re.DOTALL)
_CODE = re.compile(f"{_FENCE}|{_SPAN}", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:)[^()\s]+")
_HEADING = re.compile(r"^#{1,6} +(.*?)\s*$", re.MULTILINE)


def links(markdown: str) -> list[str]:
    """The targets of links and pictures that lead to a place of our own."""
    return _LINK.findall(_without(_CODE, markdown))


def with_links(markdown: str, change: Callable[[str], str]) -> str:
    """The text with every such target replaced by what ``change`` says."""
    out, end = "", 0
    for found in _LINK.finditer(_without(_CODE, markdown)):
        out += markdown[end : found.start()] + change(found[0])
        end = found.end()
    return out + markdown[end:]


def anchors(markdown: str) -> set[str]:
    """What can stand after ``#`` in a link to this text."""
    return {_anchor(title) for title in _HEADING.findall(_without(_FENCES, markdown))}


def resolved(page: str, target: str) -> tuple[str, str]:
    """Where a link on a page leads: a path from the root of the repository, and an anchor."""
    path, _, anchor = target.partition("#")
    return normpath(f"{page}/../{path}") if path else page, anchor


def broken(page: str, root: Path = ROOT) -> Iterator[str]:
    """What is wrong with the links of one page, a line each."""
    for target in links((root / page).read_text(encoding="utf-8")):
        path, anchor = resolved(page, target)
        file = root / path
        if path.startswith("..") or not file.exists():
            yield f"{page}: {target} leads nowhere"
        elif anchor and (file.suffix != ".md" or anchor not in anchors(file.read_text("utf-8"))):
            yield f"{page}: {target} names no heading"


def _without(code: re.Pattern[str], markdown: str) -> str:
    """The text with spaces in the place of code: every other character stays where it is."""
    return code.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), markdown)


def _anchor(title: str) -> str:
    shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)  # of a link its text
    return re.sub(r"[^\w\- ]", "", shown.lower()).strip().replace(" ", "-")
