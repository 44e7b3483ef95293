import json
from pathlib import Path

import pytest
import torch

from fourge.core.errors import FormatError
from fourge.formats.folder import INDEX, read_folder, read_json, write_folder
from fourge.formats.safetensors_file import Record


def write(folder: Path, shard_bytes: int) -> dict[str, torch.Tensor]:
    tensors = {f"t{i}": torch.full((8,), float(i)) for i in range(5)}
    records = [Record(name, "f32", (8,)) for name in tensors]
    write_folder(folder, records, iter(tensors.values()), shard_bytes=shard_bytes)
    return tensors


@pytest.mark.parametrize("shard_bytes", [1 << 20, 64, 1])
def test_what_is_written_is_read_in_one_file_or_many(tmp_path: Path, shard_bytes: int) -> None:
    tensors = write(tmp_path, shard_bytes)
    assert (tmp_path / INDEX).exists() == (shard_bytes < 160)
    again = read_folder(tmp_path)
    assert {n: s.dense().tolist() for n, s in again.items()} == {
        n: t.tolist() for n, t in tensors.items()
    }


def test_a_missing_shard_is_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path, 64)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(FormatError, match="model-00002-of-00003"):
        read_folder(tmp_path)


def test_an_index_that_leaves_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"a": "../a.safetensors"}}))
    with pytest.raises(FormatError, match="does not name"):
        read_folder(tmp_path)


def test_a_folder_without_weights_and_one_with_pickles_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no weights"):
        read_folder(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(FormatError, match="pickle"):
        read_folder(tmp_path)


@pytest.mark.parametrize("text", ["", "[1]", "{", "null"])
def test_json_that_is_not_an_object_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(FormatError, match="config"):
        read_json(tmp_path / "config.json")
