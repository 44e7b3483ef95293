"""The pages of docs/ideas: what they show is what comes out, and each has what it promises."""

import doctest
import re
from pathlib import Path

import pytest

from tests.docs.examples import pages, session
from tests.docs.links import links
from tests.documents import ROOT

SECTIONS = ("The problem", "The idea", "An example", "What it costs", "Where it is")


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.stem)
def test_every_example_gives_what_its_page_says(path: Path) -> None:
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    failed, tried = runner.run(session(path), out=said.append)
    assert tried > 3
    assert not failed, "".join(said)


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.stem)
def test_every_page_has_a_picture_an_example_its_source_and_its_tests(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert all(any(title.startswith(each) for title in titles) for each in SECTIONS), titles
    for beginning in ("../pictures/", "../../src/fourge/", "../../tests/"):
        assert any(target.startswith(beginning) for target in links(text)), beginning


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.stem)
def test_every_test_that_a_page_names_is_in_a_file_that_it_links_to(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    files = [path.parent / target for target in links(text) if "/tests/" in target]
    for name in re.findall(r"`(test_\w+)`", text):
        assert any(f"def {name}(" in file.read_text(encoding="utf-8") for file in files), name


def test_the_page_of_ideas_lists_them_all() -> None:
    listed = links((ROOT / "docs" / "ideas" / "index.md").read_text(encoding="utf-8"))
    assert {page.name for page in pages()} <= set(listed)
