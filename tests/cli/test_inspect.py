import json
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner

from fourge.cli.inspect import inspect

Folder = Callable[..., Path]


def test_the_table_has_a_line_per_role_and_a_total(tiny_folder: Folder) -> None:
    result = CliRunner().invoke(inspect, [str(tiny_folder("qwen3"))])
    assert result.exit_code == 0, result.output
    assert "model.layers.*.mlp.up_proj " in result.stdout
    assert "128x64" in result.stdout
    assert "dense" in result.stdout.splitlines()[-1]


def test_the_error_column_comes_with_another_file(tiny_folder: Folder) -> None:
    folder = str(tiny_folder("qwen3"))
    result = CliRunner().invoke(inspect, [folder, "--against", folder, "--all", "--json"])
    content = json.loads(result.stdout)
    assert {row["error"] for row in content["rows"]} == {0.0}
    assert "model.layers.1.mlp.up_proj.weight" in {row["name"] for row in content["rows"]}
    table = CliRunner().invoke(inspect, [folder, "--against", folder])
    assert "error" in table.stdout.splitlines()[0]
