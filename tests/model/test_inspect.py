from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fourge.core.errors import FormatError
from fourge.model.export import export, outgoing_from_source
from fourge.model.inspect import inspect
from fourge.model.source import open_source

Folder = Callable[..., Path]


def test_layers_of_one_role_share_a_line(tiny_folder: Folder) -> None:
    found = inspect(tiny_folder("qwen3"))
    rows = {row.name: row for row in found.rows}
    assert rows["model.layers.*.mlp.up_proj.weight"].count == 2
    assert rows["model.layers.*.mlp.up_proj.weight"].shape == (128, 64)
    assert found.layout == "dense"
    every = inspect(tiny_folder("qwen3"), every=True)
    assert len(every.rows) == sum(row.count for row in found.rows)
    assert every.nbytes == found.nbytes
    assert every.values == found.values


def test_the_error_is_relative_to_the_other_file(tmp_path: Path) -> None:
    value = torch.randn(4, 8)
    one, two = tmp_path / "one.safetensors", tmp_path / "two.safetensors"
    save_file({"a": value, "b": value.clone()}, one)
    save_file({"a": value * 0.5, "c": value}, two)
    rows = {row.name: row.error for row in inspect(one, against=two).rows}
    assert rows == {"a": pytest.approx(1.0), "b": None}


def test_quantisation_error_is_what_nvfp4_costs(tiny_folder: Folder, tmp_path: Path) -> None:
    out = tmp_path / "q"
    outgoing = outgoing_from_source(open_source(tiny_folder("llama")), "compressed-tensors")
    export(outgoing, out, "compressed-tensors")
    rows = inspect(out, against=tiny_folder("llama")).rows
    errors = {row.kind: row.error for row in rows if row.error}
    assert set(errors) == {"nvfp4"}
    assert 0.07 < errors["nvfp4"] < 0.1
    assert all(row.error == 0 for row in rows if row.kind == "bf16")


def test_files_with_nothing_in_common_are_refused(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2)}, tmp_path / "one.safetensors")
    save_file({"b": torch.ones(2)}, tmp_path / "two.safetensors")
    with pytest.raises(FormatError, match="in common"):
        inspect(tmp_path / "one.safetensors", against=tmp_path / "two.safetensors")
