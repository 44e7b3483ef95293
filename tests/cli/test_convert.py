import json
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner

from fourge.cli.convert import RECIPES, TARGETS, convert
from fourge.core.errors import OutputError
from fourge.model import export
from fourge.nvfp4 import recipe

Folder = Callable[..., Path]


def test_the_choices_are_the_librarys() -> None:
    assert TARGETS == export.TARGETS
    assert tuple(recipe.RECIPES) == RECIPES


def test_a_conversion_says_what_it_wrote(tiny_folder: Folder, tmp_path: Path) -> None:
    args = [str(tiny_folder("qwen3")), str(tmp_path / "out"), "--to", "compressed-tensors"]
    result = CliRunner().invoke(convert, args)
    assert result.exit_code == 0, result.output
    assert "compressed-tensors" in result.stdout
    assert "not quantised: lm_head, embeddings, norms" in result.stdout
    assert (tmp_path / "out" / "config.json").exists()


def test_json_is_one_document(tiny_folder: Folder, tmp_path: Path) -> None:
    args = [str(tiny_folder("llama")), str(tmp_path / "o.gguf"), "--to", "gguf", "--json"]
    result = CliRunner().invoke(convert, args)
    content = json.loads(result.stdout)
    assert content["target"] == "gguf"
    assert content["nbytes"] == (tmp_path / "o.gguf").stat().st_size


def test_keep_and_recipe_reach_the_library(tiny_folder: Folder, tmp_path: Path) -> None:
    args = [str(tiny_folder("llama")), str(tmp_path / "out"), "--to", "modelopt", "--json",
            "--keep", "down_proj", "--recipe", "modelopt"]  # fmt: skip
    content = json.loads(CliRunner().invoke(convert, args).stdout)
    assert content["kept"] == [
        "model.layers.0.mlp.down_proj", "model.layers.1.mlp.down_proj", "lm_head",
    ]  # fmt: skip


def test_the_head_is_quantised_only_when_asked(tiny_folder: Folder, tmp_path: Path) -> None:
    args = [
        str(tiny_folder("llama", tied=True)),
        str(tmp_path / "out"),
        "--to",
        "modelopt",
        "--json",
    ]
    content = json.loads(CliRunner().invoke(convert, [*args, "--quantize-head"]).stdout)
    assert content["kept"] == []


def test_an_existing_output_needs_overwrite(tiny_folder: Folder, tmp_path: Path) -> None:
    args = [str(tiny_folder("llama")), str(tmp_path / "out"), "--to", "safetensors"]
    assert CliRunner().invoke(convert, args).exit_code == 0
    again = CliRunner().invoke(convert, args)
    assert isinstance(again.exception, OutputError)
    assert CliRunner().invoke(convert, [*args, "--overwrite"]).exit_code == 0
