"""A checkpoint whose tensors lie in several files, by rows, as several processes write it."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fourge.checkpoint.files import file_entry, looks_whole, open_state, write_index
from fourge.checkpoint.state import (
    Contents,
    PartEntry,
    TensorEntry,
    decode,
    digest_of,
    encode,
)
from fourge.core.errors import FormatError
from fourge.formats.stored import bytes_of

WHOLE = torch.arange(35.0).view(7, 5).bfloat16()
CUTS = [(0, 3), (3, 3), (6, 1)]


def written(folder: Path) -> Path:
    parts, files = [], {}
    for number, (first, rows) in enumerate(CUTS):
        path = folder / f"shard-{number}.safetensors"
        part = WHOLE[first : first + rows].contiguous()
        save_file({"weight/w": part}, path, metadata={"format": "pt"})
        files[path.name] = file_entry(path)
        parts.append(PartEntry(path.name, first, rows, digest_of(bytes_of(part))))
    entry = TensorEntry("", "bf16", (7, 5), "", tuple(parts))
    write_index(folder, Contents({"step": 3}, files, {"weight/w": entry}))
    return folder


def test_rows_in_several_files_are_read_as_one_tensor(tmp_path: Path) -> None:
    state = open_state(written(tmp_path))
    assert torch.equal(state.tensors["weight/w"], WHOLE)
    assert state.entries["weight/w"].shape == (7, 5)
    assert looks_whole(tmp_path)


@pytest.mark.parametrize("number", range(3))
def test_a_changed_byte_of_any_part_is_found_and_its_file_named(
    tmp_path: Path, number: int
) -> None:
    path = written(tmp_path) / f"shard-{number}.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(FormatError, match=rf"shard-{number}\.safetensors is damaged"):
        open_state(tmp_path).tensors["weight/w"]


def test_a_missing_part_is_found(tmp_path: Path) -> None:
    (written(tmp_path) / "shard-1.safetensors").unlink()
    assert not looks_whole(tmp_path)
    with pytest.raises(FormatError, match="shard-1"):
        open_state(tmp_path)


@pytest.mark.parametrize("cuts", [[(0, 3), (4, 3)], [(0, 3), (3, 3)], [(1, 6)], [(3, 4), (0, 3)]])
def test_parts_that_do_not_make_a_whole_cannot_be(cuts: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="do not make a whole"):
        TensorEntry("", "bf16", (7, 5), "", tuple(PartEntry("f", *cut, "d") for cut in cuts))


def test_an_index_without_parts_is_as_it_always_was(tmp_path: Path) -> None:
    contents = Contents({"step": 1}, {}, {})
    assert b'"format": 1' in encode(contents)
    assert b'"format": 2' in (written(tmp_path) / "state.json").read_bytes()
    assert decode(tmp_path, encode(contents)) == contents
