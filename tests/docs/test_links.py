"""Every link of every document leads to a file and to a heading; and the checker can tell."""

from pathlib import Path

import pytest

from tests.docs.links import anchors, broken, links, resolved, with_links
from tests.documents import ROOT

DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
)


@pytest.mark.parametrize("page", DOCUMENTS)
def test_every_link_leads_to_a_file_and_to_a_heading(page: str) -> None:
    assert list(broken(page)) == []


def test_the_documents_are_all_here() -> None:
    assert {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/index.md"} <= set(DOCUMENTS)
    assert sum(len(links((ROOT / page).read_text(encoding="utf-8"))) for page in DOCUMENTS) > 100


def test_a_link_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    (root / "docs").mkdir(parents=True)
    (tmp_path / "outside.md").write_text("# Somebody else's\n")
    (root / "README.md").write_text("# One two\n\n## C++, and `code`: [more](docs/page.md)\n")
    (root / "code.py").write_text("# One two\n")
    (root / "docs" / "page.md").write_text(
        "# Page\n[a](../README.md) [b](../README.md#one-two) [c](#page) [d](../code.py)\n"
        "[e](../README.md#c-and-code-more) ![f](gone.png) [g](../README.md#three) [h](#gone)\n"
        "[i](../../outside.md) [j](../code.py#one-two) [k](gone.md 'titled') [l](https://a.b/c)\n"
    )
    assert list(broken("docs/page.md", root)) == [
        "docs/page.md: gone.png leads nowhere",
        "docs/page.md: ../README.md#three names no heading",
        "docs/page.md: #gone names no heading",
        "docs/page.md: ../../outside.md leads nowhere",
        "docs/page.md: ../code.py#one-two names no heading",
        "docs/page.md: gone.md leads nowhere",
    ]


def test_code_has_no_links_and_no_headings() -> None:
    text = "# Real\n`[a](b)` ``[c](d) ` `` [e](f)\n\n```python\n# Not\n[g](h)\n```\n[i](j)\n"
    text += "~~~\n[k](l)\n~~~\nOne ` alone\n\n[m](n), and another ` alone\n"
    assert links(text) == ["f", "j", "n"]
    assert anchors(text) == {"real"}


def test_links_are_changed_where_they_stand_and_nothing_else_is() -> None:
    text = "[a](x.md) `[b](x.md)` [c](https://x.md) ![d](x.md#y)\n"
    assert with_links(text, str.upper) == "[a](X.MD) `[b](x.md)` [c](https://x.md) ![d](X.MD#Y)\n"


def test_a_link_is_read_from_where_it_stands() -> None:
    assert resolved("docs/ideas/plan.md", "../../src/a.py#b") == ("src/a.py", "b")
    assert resolved("README.md", "docs/a.md") == ("docs/a.md", "")
    assert resolved("docs/a.md", "#b") == ("docs/a.md", "b")
