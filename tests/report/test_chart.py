"""A chart has its curve, its legend and its numbers."""

import re

from fourge.report.chart import Chart, Level, Line, Mark, figure
from tests.report.test_markup import read

SHORT = Line("minimised", [1, 2, 3], [5.0, 4.0, 4.5])


def chart(*lines: Line, **more: object) -> Chart:
    return Chart("r0-loss", "Loss", "step", "nats", lines, **more)  # type: ignore[arg-type]


def test_the_course_of_a_curve_is_said_in_words() -> None:
    text = figure(chart(SHORT))
    assert "minimised: from 5 to 4.5, lowest 4 at step 2, highest 5 at 1." in text
    assert "points drawn" not in text


def test_a_long_curve_is_thinned_and_says_so() -> None:
    line = Line("x", range(50_000), [float(at % 97) for at in range(50_000)])
    text = figure(chart(line))
    assert re.search(r"[78]\d\d of 50,000 points drawn", text)
    assert len(text) < 100_000
    assert text.count("stroke-opacity: 0.35") == 1, "the band, and the mean in it"
    assert "stroke-opacity" not in figure(chart(SHORT))


def test_one_point_can_be_seen() -> None:
    assert "<use" in re.sub(r"<use[^>]*grid[^>]*>", "", figure(chart(Line("x", [7], [1.5]))))


def test_marks_and_levels_are_drawn_and_named() -> None:
    text = figure(chart(SHORT, marks=(Mark(2, "guard: 警告", alarm=True), Mark(1.5, "resumed")),
                        levels=(Level(4.4, "planned peak"),)))  # fmt: skip
    assert "step 2: guard: 警告" in text
    assert "step 1.5: resumed" in text
    assert text.count("var(--alarm)") == 2
    assert "planned peak</text>" in text


def test_a_legend_names_each_curve_unless_the_title_does() -> None:
    two = figure(chart(SHORT, Line("慢", [1, 2], [3.0, 2.0])))
    assert '<i class="key curve-1"></i>慢' in two
    assert 'class="key' not in figure(chart(Line("Loss", [1, 2], [3.0, 2.0])))


def test_the_table_holds_numbers_of_every_curve() -> None:
    lines = [Line(f"run {at}", range(100), [float(at)] * 100) for at in range(3)]
    found = read(figure(chart(*lines)))
    assert found.tags.count("tr") == 1 + 3 * 14
    assert found.tags.count("table") == 1


def test_more_curves_than_colours_differ_by_their_dashes() -> None:
    lines = [Line(f"run {at}", [0, 1], [float(at), 0.0]) for at in range(9)]
    text = figure(chart(*lines))
    assert text.count("stroke: var(--curve-0)") == 2
    assert "stroke-dasharray" in text


def test_percent_and_logarithm_have_their_ticks() -> None:
    assert "%</text>" in figure(chart(Line("x", [1, 2], [0.01, 0.4]), share=True))
    logarithmic = figure(chart(Line("x", [1, 2], [0.1, 100.0]), log=True))
    assert all(f">{tick}</text>" in logarithmic for tick in ("0.1", "10", "100"))
