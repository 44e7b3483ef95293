import sys
from pathlib import Path

import pytest

from fourge.core.errors import ConfigError
from fourge.core.picture import figure_for, write_figure


def test_a_figure_is_written_in_the_format_of_its_name(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name, beginning in (("a.png", b"\x89PNG"), ("a.SVG", b"<?xml"), ("a.pdf", b"%PDF")):
        path = tmp_path / name
        path.write_text("an older one")
        figure = figure_for(path, (2, 1))
        figure.subplots().plot([1, 2])
        write_figure(figure, path)
        assert path.read_bytes().startswith(beginning)
    assert len(list(tmp_path.iterdir())) == 3


def test_an_svg_of_the_same_figure_has_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("one.svg", "two.svg"):
        figure = figure_for(tmp_path / name, (2, 1))
        figure.subplots().plot([1, 2], marker="o", clip_on=True)
        write_figure(figure, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


@pytest.mark.parametrize("name", ["plan.txt", "plan"])
def test_a_name_that_is_no_picture_s_is_refused(name: str) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(ConfigError, match=r"not a picture's name"):
        figure_for(Path(name))


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match="matplotlib") as caught:
        figure_for(Path("a.png"))
    assert "pip install 'fourge[pictures]'" in caught.value.fix
