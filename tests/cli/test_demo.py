import json
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner

from fourge.cli.demo import demo
from fourge.core.errors import OutputError

Folder = Callable[..., Path]


def test_the_demo_runs_on_any_model_and_says_each_step(tiny_folder: Folder, tmp_path: Path) -> None:
    args = ["--model", str(tiny_folder("llama")), "--out", str(tmp_path / "out"), "--no-guard"]
    result = CliRunner().invoke(demo, args)
    assert result.exit_code == 0, result.output
    for step in ("1/4", "2/4", "3/4", "4/4", "bit for bit"):
        assert step in result.stdout
    assert (tmp_path / "out" / "model.safetensors").exists()
    again = CliRunner().invoke(demo, args)
    assert isinstance(again.exception, OutputError)


def test_json_has_the_numbers(tiny_folder: Folder) -> None:
    result = CliRunner().invoke(
        demo, ["--model", str(tiny_folder("qwen3")), "--json", "--no-guard"]
    )
    content = json.loads(result.stdout)
    assert content["logits"] > 0
    assert 0.07 < content["error"] < 0.12
