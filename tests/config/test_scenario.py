import re
from pathlib import Path

import pytest

from fourge.config.scenario import load_scenario
from fourge.core.errors import ConfigError


def written(folder: Path, text: str) -> Path:
    path = folder / "scenario.yaml"
    path.write_text(text)
    return path


def test_a_scenario_is_read_with_its_limits_and_expectations(tmp_path: Path) -> None:
    text = """
    system: Be brief.
    turns:
      - {prompt: Hi, max_tokens: 5, seconds: 1e1, expect: {contains: [a], matches: ["^b"]}}
      - {prompt: Bye, reset: true, expect: {lacks: [c], ended: max tokens}}
    """
    scenario = load_scenario(written(tmp_path, text))
    assert scenario.system == "Be brief."
    one, two = scenario.turns
    assert (one.max_tokens, one.seconds, one.expect.contains) == (5, 10.0, ("a",))
    assert (two.reset, two.expect.lacks, two.expect.ended) == (True, ("c",), "max tokens")
    assert two.max_tokens is None


def test_the_scenario_in_the_documents_is_one(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "chat.md").read_text(encoding="utf-8")
    (scenario,) = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(load_scenario(written(tmp_path, scenario)).turns) == 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- a", "begin with turns"),
        ("system: x", "turns: is required"),
        ("turns: []", "turns: is empty"),
        ("turns: [{prompt: ''}]", "turns.0.prompt: is empty"),
        ("turns: [{prompt: x, max_token: 3}]", "did you mean max_tokens"),
        ("turns: [{prompt: x, seconds: 0}]", "more than 0"),
        ("turns: [{prompt: x, expect: {matches: ['(']}}]", "not a regular expression"),
        ("turns: [{prompt: x, expect: {ended: never}}]", "one of: stop"),
        ("turns: [{prompt: x, prompt: y}]", "given twice"),
    ],
)
def test_every_mistake_is_named(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_scenario(written(tmp_path, text))
    assert says in str(caught.value)
