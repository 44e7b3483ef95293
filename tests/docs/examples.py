"""Examples in Markdown: the ``pycon`` fences of a page are one session."""

import doctest
import re
from pathlib import Path

from tests.documents import ROOT

_SESSION = re.compile(r"^```pycon\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """The pages that teach an idea."""
    return sorted(path for path in (ROOT / "docs" / "ideas").glob("*.md") if path.stem != "index")


def session(path: Path) -> doctest.DocTest:
    """What a page types, and what it says comes out."""
    text = "\n".join(_SESSION.findall(path.read_text(encoding="utf-8")))
    return doctest.DocTestParser().get_doctest(text, {}, path.name, str(path), 0)
