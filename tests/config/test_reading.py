from pathlib import Path

import pytest
from pydantic import ValidationError, model_validator

from fourge.config.reading import load_settings, refuse_broken
from fourge.config.settings import Count
from fourge.config.strict import Mistake, Strict
from fourge.core.errors import ConfigError


class Pair(Strict):
    low: Count
    high: Count = 9

    @model_validator(mode="after")
    def _ordered(self) -> "Pair":
        refuse_broken([Mistake(("low",), "is above high")] if self.low > self.high else [])
        return self


def refused(path: Path, text: str, *settings: str) -> str:
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_settings(Pair, path, settings, called="apple file", begin="low:")
    return str(caught.value)


def test_a_file_is_read_with_settings_on_top_of_it(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("low: 3\n")
    pair = load_settings(Pair, path, ["high=4"], called="pair", begin="low:")
    assert (pair.low, pair.high) == (3, 4)


def test_every_mistake_is_said_at_once(tmp_path: Path) -> None:
    said = refused(tmp_path / "x.yaml", "low: 0\nlow: 0\nhihg: 2\n", "nonsense")
    assert "x.yaml is not a valid apple file." in said
    for text in ("given twice", "nonsense", "low: is 0", "did you mean high?"):
        assert text in said


def test_rules_are_asked_where_single_settings_are_wrong_and_said_once_where_they_are_not(
    tmp_path: Path,
) -> None:
    assert refused(tmp_path / "x.yaml", "low: 10").count("is above high") == 1
    path = tmp_path / "y.yaml"
    path.write_text("low: 0")
    with pytest.raises(ConfigError) as caught:
        load_settings(
            Pair, path, called="pair", begin="low:",
            rules=lambda tree, faults: [Mistake(("high",), f"seen beside {faults}")],
        )  # fmt: skip
    assert "seen beside [('low',)]" in str(caught.value)


def test_what_is_no_mapping_is_named(tmp_path: Path) -> None:
    assert "is not an apple file." in refused(tmp_path / "x.yaml", "- 1\n")


def test_made_in_code_a_broken_rule_is_an_error_too() -> None:
    with pytest.raises(ValidationError, match="low: is above high"):
        Pair(low=5, high=2)
