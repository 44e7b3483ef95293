"""No text becomes markup."""

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from fourge.report.markup import Markup, details, section, table, tag

HOSTILE = st.text(st.sampled_from("<>&\"'=/ abi\n誰"), max_size=30)


class Reader(HTMLParser):
    """Another's parser: which elements and what text it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: dict[str, str | None] = {}
        self.text = ""

    def handle_starttag(self, name: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(name)
        self.attributes |= dict(attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    return reader


@given(HOSTILE, HOSTILE)
def test_text_is_read_back_as_it_was(inside: str, attribute: str) -> None:
    found = read(tag("p", inside, title=attribute))
    assert found.tags == ["p"]
    assert found.text == inside
    assert found.attributes == {"title": attribute}


@given(HOSTILE)
def test_a_table_has_the_cells_it_was_given_and_no_more(cell: str) -> None:
    found = read(table((cell, "b"), [(cell, cell)], cell))
    assert found.tags == ["div", "table", "caption", "thead", "tr", "th", "th", "tbody", "tr",
                          "th", "td"]  # fmt: skip
    assert found.text == cell + cell + "b" + cell + cell


def test_names_of_attributes_are_written_as_html_has_them() -> None:
    assert tag("i", class_="key", aria_label="a", id=None) == '<i class="key" aria-label="a"></i>'


def test_markup_is_not_escaped_twice() -> None:
    assert tag("p", Markup("<b>x</b>"), "<") == "<p><b>x</b>&lt;</p>"


def test_sections_and_details_can_be_reached() -> None:
    assert 'id="a" aria-labelledby="a-title"' in section("a", "A", "x")
    assert details("d", "more", "x") == '<details id="d"><summary>more</summary>x</details>'
    assert 'tabindex="0"' in table(("a",), [], "c")
