import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fourge.cli.needle import _lengths, needle
from fourge.core.errors import ConfigError, DataError
from fourge.evaluate import needle as evaluate
from fourge.evaluate.haystack import secret

Folder = Callable[..., Path]


@pytest.fixture
def args(tiny_folder: Folder, tmp_path: Path) -> list[str]:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(f"line {n}" for n in range(99)), encoding="utf-8")
    return [str(tiny_folder("qwen3")), "--tokens", "250", "--lengths", "230", "--chunk", "32",
            "--depths", "3", "--text", str(text)]  # fmt: skip


def test_a_model_of_noise_finds_nothing_and_memory_is_told(args: list[str]) -> None:
    result = CliRunner().invoke(needle, args)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == " depth       230      250  tokens"
    assert lines[2] == "   50%      lost     lost"
    assert "250 at 100%: " in result.stdout
    assert "0% found" in lines
    assert "bytes a token: 512 predicted, 512 in the cache, " in result.stdout
    assert lines[-1].startswith("resident by half: ")
    assert CliRunner().invoke(needle, [*args, "--at-least", "0.1"]).exit_code == 1


def test_what_is_found_is_reported_by_depth_and_length(
    args: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = iter([secret(5, number) for number in range(6)])

    def reply(feed: Any, template: Any, prompt: Sequence[int]) -> str:
        code = next(codes)
        place = template.tokenizer.decode(prompt).index(code)
        return f"It is {code.upper()}." if place < 100 else "No."

    monkeypatch.setattr(evaluate, "_reply", reply)
    result = CliRunner().invoke(needle, [*args, "--seed", "5", "--json", "--at-least", "0.6"])
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert content["recall"] == pytest.approx(2 / 3)
    assert content["by_depth"] == {"1.0": 0.0, "0.5": 1.0, "0.0": 1.0}
    assert content["by_length"] == {"250": pytest.approx(2 / 3), "230": pytest.approx(2 / 3)}
    assert [each["found"] for each in content["asked"]] == [False, True, True] * 2
    assert content["bytes_per_token"]["predicted"] == content["bytes_per_token"]["cache"] == 512
    assert len(content["held"]) == 7


def test_a_picture_is_drawn(args: list[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "needle.png"
    result = CliRunner().invoke(needle, [*args, "--picture", str(picture)])
    assert result.exit_code == 0, result.output
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_nothing_is_loaded(
    args: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = CliRunner().invoke(needle, ["nowhere", *args[1:], "--picture", "a.png"])
    assert isinstance(result.exception, ConfigError)
    assert "pip install" in result.exception.fix


def test_more_than_the_context_is_refused_before_a_weight_is_read(
    args: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fourge.chat.load.load", None)
    result = CliRunner().invoke(needle, [args[0], "--tokens", "257"])
    assert isinstance(result.exception, ConfigError)
    assert "context of 256" in str(result.exception)


def test_a_length_without_room_is_refused_before_a_weight_is_read(
    args: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fourge.chat.load.load", None)
    result = CliRunner().invoke(needle, [*args, "--lengths", "100"])
    assert isinstance(result.exception, DataError)
    assert "68 tokens have no room" in str(result.exception)


def test_lengths_are_a_quarter_and_a_half_unless_given(args: list[str]) -> None:
    assert _lengths("", 2048) == [512, 1024, 2048]
    assert _lengths("300, 200", 2048) == [200, 300, 2048]
    for wrong in ("1,x", "0", "999"):
        bad = CliRunner().invoke(needle, [*args, "--lengths", wrong])
        assert isinstance(bad.exception, ConfigError), wrong


def test_a_text_that_is_not_utf8_is_refused(args: list[str], tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes(b"\xff\xfe\xff")
    result = CliRunner().invoke(needle, args)
    assert isinstance(result.exception, ConfigError)
    assert "not UTF-8" in str(result.exception)
