"""The glossary says the same in two languages: the same terms, in the same order, linked."""

import re
from pathlib import Path

import pytest

from tests.documents import ROOT, text_of

_SAID_OTHERWISE = {"4.02", "1.35", "40.2"}  # of billions: Chinese counts in other units
ENGLISH, CHINESE = (ROOT / "docs" / f"glossary{ending}.md" for ending in ("", ".zh-TW"))


def entries(text: str) -> dict[str, str]:
    """What stands under each heading of a term."""
    parts = re.split(r"^### (.*)$", text, flags=re.M)[1:]
    bodies = [body.partition("\n## ")[0].strip() for body in parts[1::2]]
    return dict(zip(parts[::2], bodies, strict=True))


def english_of(heading: str) -> str:
    """The term in the wide brackets of a Chinese heading; one without them is English."""
    found = re.search(r"（(.*)）$", heading)
    return found[1] if found else heading


def test_both_have_the_same_terms_in_the_same_order() -> None:
    english, chinese = entries(text_of(ENGLISH)), entries(text_of(CHINESE))
    assert [english_of(heading) for heading in chinese] == list(english)
    assert len(english) >= 40


def test_both_have_the_same_parts() -> None:
    places = [re.findall(r"^(#{2,3}) ", text_of(path), re.M) for path in (ENGLISH, CHINESE)]
    assert places[0] == places[1]


def test_an_entry_has_the_same_numbers_and_commands_in_both() -> None:
    english, chinese = entries(text_of(ENGLISH)), entries(text_of(CHINESE))
    for term, heading in zip(english, chinese, strict=True):
        assert _facts(english[term]) == _facts(chinese[heading]), term


def _facts(body: str) -> list[str]:
    """Numbers with a point, and code: what a translation keeps as it is, in whatever order."""
    numbers = re.findall(r"(?<![\w.])\d+\.\d+", body)
    return sorted([n for n in numbers if n not in _SAID_OTHERWISE] + re.findall(r"`[^`]+`", body))


@pytest.mark.parametrize("path", [ENGLISH, CHINESE], ids=["en", "zh-TW"])
def test_an_entry_is_one_to_four_sentences_and_perhaps_a_command(path: Path) -> None:
    for term, body in entries(text_of(path)).items():
        ends = re.findall(r"[.!?](?=\s|$)|[。！？]", re.sub(r"`[^`]*`", "", body))
        assert 1 <= len(ends) <= 5, term


def test_each_leads_to_the_other() -> None:
    assert f"({CHINESE.name})" in text_of(ENGLISH)
    assert f"({ENGLISH.name})" in text_of(CHINESE)
