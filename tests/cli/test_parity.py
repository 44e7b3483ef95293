import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from fourge.cli.parity import parity
from fourge.core.errors import ConfigError

Folder = Callable[..., Path]


@pytest.fixture
def model(tiny_folder: Folder) -> str:
    return str(tiny_folder("qwen3"))


def test_train_and_packed_are_equal_and_the_table_fits(model: str) -> None:
    result = CliRunner().invoke(parity, [model, "--tokens", "5", "--prompt", "你是誰"])
    assert result.exit_code == 0, result.output
    for text in (
        "train in float32\npacked in float32\n",
        "block 1             0          0  1.000000\n",
        "first token, after",
        "5 of 5 greedy tokens agree\nequal, bit for bit\n",
    ):
        assert text in result.stdout, text
    tokens = [line for line in result.stdout.splitlines() if re.match(r" ?\d+  ", line)]
    assert len(tokens) == 10
    assert all(line[4:37] == line[41:74] for line in tokens)
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_beyond_the_bounds_leaves_with_one_and_says_where(model: str) -> None:
    args = [model, "--against", "bf16", "--tokens", "8", "--prompt", "Hi"]
    strict = CliRunner().invoke(parity, [*args, "--cosine", "1"])
    assert strict.exit_code == 1, strict.output
    assert "block 0 has cosine 0." in strict.stdout
    assert "equal" not in strict.stdout
    loose = [*args, "--cosine", "-1", "--agreement", "0", "--json"]
    content = json.loads(CliRunner().invoke(parity, loose).stdout)
    assert content["passed"]
    assert content["bounds"] == {"cosine": -1, "agreement": 0}
    assert [each["place"] for each in content["places"]] == [
        "embedding", "block 0", "block 1", "norm", "logits", "said",
    ]  # fmt: skip
    assert content["dtypes"] == ["bfloat16", "bfloat16"]
    assert not content["equal"]


def test_where_they_part_is_counted_from_one(model: str, tiny_folder: Folder) -> None:
    args = [model, "--against", str(tiny_folder("llama")), "--tokens", "12"]
    content = json.loads(CliRunner().invoke(parity, [*args, "--json"]).stdout)
    shown = CliRunner().invoke(parity, args)
    assert shown.exit_code == 1
    assert f"they part at token {content['parted'] + 1}\n" in shown.stdout


def test_what_cannot_be_compared_is_refused(model: str) -> None:
    result = CliRunner().invoke(parity, [model, "--against", "transformers", "--dtype", "float32"])
    assert isinstance(result.exception, ConfigError)
    assert CliRunner().invoke(parity, [model, "--tokens", "0"]).exit_code == 2
