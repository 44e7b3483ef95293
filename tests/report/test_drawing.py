"""Drawings that the page colours."""

import re
from xml.etree import ElementTree

import pytest
from matplotlib.axes import Axes

from fourge.report.drawing import ALARM, COLOURS, CURVE, drawn
from fourge.report.markup import Markup


def plot(axes: Axes) -> None:
    for number, colour in enumerate(CURVE):
        axes.plot([0, 1, 2], [number, 1, 2], color=colour)
    axes.axhline(1, color=ALARM)
    axes.set_ylabel("損失 <nats>")


@pytest.fixture(scope="module")
def svg() -> Markup:
    return drawn("one", "Loss & more", "falls", plot)


def tree(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg.replace("<svg ", '<svg xmlns:xlink="x" ', 1))


def test_every_colour_is_left_to_the_page(svg: Markup) -> None:
    assert not re.search("#[0-9a-fA-F]{6}", svg)
    for number in range(COLOURS):
        assert f"stroke: var(--curve-{number})" in svg
    for name in ("currentColor", "var(--grid)", "var(--alarm)"):
        assert name in svg


def test_text_is_text_in_the_font_of_the_page(svg: Markup) -> None:
    texts = ["".join(each.itertext()) for each in tree(svg).iter("text")]
    assert "損失 <nats>" in texts
    assert "font-family" not in svg


def test_it_is_well_formed_and_says_what_it_is(svg: Markup) -> None:
    root = tree(svg)
    assert [root[at].text for at in (0, 1)] == ["Loss & more", "falls"]
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-labelledby"] == "one-title one-about"


def test_nothing_in_it_reaches_out_of_it(svg: Markup) -> None:
    assert "http" not in svg
    assert "<style" not in svg
    ids = set(re.findall(r' id="([^"]+)"', svg))
    assert all(each.startswith("one-") for each in ids)
    used = set(re.findall(r'(?:url\(|href=")#([^")]+)', svg))
    assert used
    assert used <= ids


def test_the_same_is_drawn_the_same() -> None:
    assert drawn("a", "t", "d", plot) == drawn("a", "t", "d", plot)
