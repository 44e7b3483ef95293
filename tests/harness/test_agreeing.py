from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fourge.core.crew import ALONE
from fourge.core.errors import ConfigError
from fourge.harness.agreeing import _leaves, _require_rows, examined, facts
from tests.harness.samples import run_of


def quiet(what: str, done: int, total: int) -> None:
    pass


def test_what_ranks_compare_names_settings_data_and_versions_but_no_place(
    tiny_folder: Callable[..., Path], tmp_path: Path
) -> None:
    model = tiny_folder("qwen3", tied=True)
    one, two = (run_of(tmp_path / name, model) for name in ("one", "two"))
    said = [facts(run, examined(run, False, quiet, ALONE).checked, None) for run in (one, two)]
    assert said[0] == said[1], "only where files lie differs"
    assert {"optim.lr", "train.batch", "data", "version of torch", "going on from"} <= said[
        0
    ].keys()
    assert not {"out", "model.path", "data.mix.0.path"} & said[0].keys()
    other = run_of(tmp_path / "three", model, optim={"lr": 0.5})
    found = facts(other, examined(other, False, quiet, ALONE).checked, None)
    assert {name for name in found if found[name] != said[0].get(name)} == {"optim.lr"}


@pytest.mark.parametrize(
    ("tree", "leaves"),
    [
        ({"a": {"b": 1}}, [("a.b", "1")]),
        ({"a": [{"b": None}, "x"]}, [("a.0.b", "null"), ("a.1", '"x"')]),
        ({"a": [], "b": {}}, [("a", "[]"), ("b", "{}")]),
    ],
)
def test_every_setting_has_its_dotted_name(tree: Any, leaves: list[tuple[str, str]]) -> None:
    assert list(_leaves(tree, "")) == leaves


def test_every_process_needs_a_row(tiny_folder: Callable[..., Path], tmp_path: Path) -> None:
    run = run_of(tmp_path, tiny_folder("qwen3", tied=True))
    _require_rows(run, 2)
    with pytest.raises(ConfigError, match=r"train\.batch is 2, and there are 3 processes"):
        _require_rows(run, 3)
