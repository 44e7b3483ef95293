"""README.md and README.zh-TW.md say the same: they cannot drift apart unnoticed."""

import re
from itertools import zip_longest
from pathlib import Path

from tests.documents import ROOT, blocks, text_of, without_blocks

ENGLISH, CHINESE = ROOT / "README.md", ROOT / "README.zh-TW.md"


def test_the_code_blocks_are_the_same() -> None:
    for one, other in zip_longest(blocks(ENGLISH), blocks(CHINESE)):
        assert one == other


def test_headings_items_and_rows_come_in_the_same_order() -> None:
    shapes = [re.findall(r"^(#+ |- |\|)", text_of(path), re.M) for path in (ENGLISH, CHINESE)]
    assert shapes[0] == shapes[1]


def test_links_numbers_and_code_are_the_same() -> None:
    """Of each section, in whatever order; a link may lead to the reader's own language."""
    one, other = (_facts(path) for path in (ENGLISH, CHINESE))
    assert one == other


def _facts(path: Path) -> list[list[str]]:
    text = without_blocks(path).replace(".zh-TW.md", ".md")
    found = r"\]\([^)]+\)|`[^`\n]+`|(?<![\w.])\d[\d.,]*\d|(?<![\w.])\d(?!\w)"
    return [sorted(re.findall(found, part)) for part in text.split("\n## ")]


def test_each_leads_to_the_other_in_its_first_lines() -> None:
    assert "](README.zh-TW.md)" in text_of(ENGLISH)[:400]
    assert "](README.md)" in text_of(CHINESE)[:400]
