from dataclasses import replace
from pathlib import Path

import pytest

from fourge import __version__
from fourge.memory import machine as module
from fourge.memory.machine import DEFAULT, calibration_file, keep, machine_name, this_machine

MEASURED = replace(DEFAULT, libraries=123, holes=0.25, source="measured")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_what_was_measured_is_kept_and_found_again(tmp_path: Path) -> None:
    assert this_machine() is DEFAULT
    assert keep(MEASURED) == tmp_path / "fourge" / "calibration.json" == calibration_file()
    assert this_machine() == MEASURED


def test_another_machine_or_version_is_not_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    keep(MEASURED)
    assert __version__ in machine_name()
    monkeypatch.setattr(module, "__version__", "9.9")
    assert this_machine() is DEFAULT
    keep(replace(MEASURED, libraries=7))
    monkeypatch.undo()


def test_both_of_two_machines_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(MEASURED)
    with monkeypatch.context() as patch:
        patch.setattr(module, "_processor", lambda: "another")
        keep(replace(MEASURED, libraries=7))
        assert this_machine().libraries == 7
    assert this_machine() == MEASURED


def test_a_damaged_file_is_as_if_it_were_not_there() -> None:
    calibration_file().parent.mkdir(parents=True)
    for text in ("{", "[1]", ""):
        calibration_file().write_text(text)
        assert this_machine() is DEFAULT
