import sys
from pathlib import Path

import pytest

from fourge.core.errors import ConfigError
from fourge.memory.limit import Limit
from fourge.memory.machine import DEFAULT
from fourge.memory.picture import draw
from fourge.memory.plan import plan
from tests.memory.samples import wanted

LIMIT = Limit(1 << 30, "as asked for")


def test_a_picture_has_every_part_and_the_limit(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    made = plan(wanted(), DEFAULT)
    draw(made, LIMIT, tmp_path / "plan.svg", "a model")
    text = (tmp_path / "plan.svg").read_text()
    assert "<svg" in text
    draw(made, LIMIT, tmp_path / "plan.png", "a model")
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")


def test_a_name_that_is_no_picture_s_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(ConfigError, match=r"\.png"):
        draw(plan(wanted(), DEFAULT), LIMIT, tmp_path / "plan.txt", "a model")
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(ConfigError, match="pip install"):
        draw(plan(wanted(), DEFAULT), LIMIT, tmp_path / "plan.png", "a model")
