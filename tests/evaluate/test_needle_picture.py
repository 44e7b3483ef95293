from pathlib import Path

import pytest

from fourge.core.picture import figure_for
from fourge.evaluate.needle import Asked, Held, Recall
from fourge.evaluate.needle_picture import FOUND, LOST, draw

MIB = 1 << 20


def test_every_prompt_is_a_square_and_every_chunk_a_point() -> None:
    colors = pytest.importorskip("matplotlib.colors")
    asked = (Asked(1000, 990, 0.0, "a-1", "a-1"), Asked(1000, 990, 1.0, "b-2", "no"),
             Asked(500, 490, 0.0, "c-3", "c-3"), Asked(500, 490, 1.0, "d-4", "d-4"))  # fmt: skip
    held = (Held(100, 0, 5 * MIB), Held(200, 0, 7 * MIB))
    figure = figure_for(Path("a.png"))
    draw(figure, Recall(asked, held), 2 * MIB // 100, "a model")
    squares, memory = figure.axes
    assert figure.get_suptitle() == "a model: 75% found"
    assert [text.get_text() for text in squares.get_xticklabels()] == ["500", "1,000"]
    assert [text.get_text() for text in squares.get_yticklabels()] == ["0%", "100%"]
    at = {(round(p.get_x() + 0.45), round(p.get_y() + 0.45)): colors.to_hex(p.get_facecolor())
          for p in squares.patches}  # fmt: skip
    assert at == {(0, 0): FOUND, (0, 1): FOUND, (1, 0): FOUND, (1, 1): LOST}
    words = {text.get_position(): text.get_text() for text in squares.texts}
    assert words[1, 1] == "lost"
    assert words[0, 1] == "found"
    low, high = squares.get_ylim()
    assert low > 1.45  # the beginning is on top
    assert high < -0.45
    predicted, measured = memory.lines
    assert predicted.get_ydata()[1] == pytest.approx(2.0, abs=0.001)
    assert list(measured.get_ydata()) == [0, 2]
    assert list(measured.get_xdata()) == [100, 200]
