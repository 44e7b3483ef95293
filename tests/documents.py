"""The documents, and what can be found in them: commands, code spans, settings."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "README.zh-TW.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def blocks(path: Path) -> list[str]:
    """What stands between fences, the fences included."""
    return re.findall(r"^```.*?^```$", text_of(path), re.M | re.S)


def commands(path: Path) -> list[str]:
    """The lines that are to be typed, without the comment behind them."""
    found = re.findall(r"^\$ (.*)$", "\n".join(blocks(path)), re.M)
    return [re.sub(r"\s+#\s.*$", "", line).strip() for line in found]


def without_blocks(path: Path) -> str:
    """The running text and the tables."""
    prose = text_of(path)
    for block in blocks(path):
        prose = prose.replace(block, "")
    return prose


def spans(path: Path) -> Iterator[str]:
    """The code spans of the running text and of the tables."""
    yield from re.findall(r"`([^`\n]+)`", without_blocks(path))


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))
