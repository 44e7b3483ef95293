from pathlib import Path

import pytest
import safetensors
import torch
from safetensors.torch import load_file, save_file

from fourge.formats.safetensors_file import Record, read_safetensors, shards, write_safetensors

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.uint8,
          torch.int64, torch.bool]  # fmt: skip


def tensors() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    made = {f"t{i}": (torch.randn(3, i + 1) * 4).to(dtype) for i, dtype in enumerate(DTYPES)}
    return made | {"scalar": torch.tensor(3.5), "leer": torch.empty(0, 4), "名": torch.ones(2)}


def test_we_read_what_the_package_writes(tmp_path: Path) -> None:
    save_file(tensors(), tmp_path / "a.safetensors", metadata={"format": "pt"})
    ours = read_safetensors(tmp_path / "a.safetensors")
    assert set(ours) == set(tensors())
    for name, tensor in tensors().items():
        read = ours[name].dense()
        assert read.dtype is tensor.dtype
        assert read.shape == tensor.shape
        assert torch.equal(read.float(), tensor.float())


def test_the_package_reads_what_we_write(tmp_path: Path) -> None:
    from fourge.formats.stored import KIND_OF

    path = tmp_path / "a.safetensors"
    records = [Record(n, KIND_OF[t.dtype], tuple(t.shape)) for n, t in tensors().items()]
    write_safetensors(path, records, tensors().values())
    theirs = load_file(path)
    for name, tensor in tensors().items():
        assert torch.equal(theirs[name].float(), tensor.float())
    with safetensors.safe_open(path, "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_a_value_that_was_not_announced_so_is_a_bug(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="announced"):
        write_safetensors(tmp_path / "a", [Record("w", "f32", (2,))], [torch.zeros(3)])


def test_shards_hold_their_limit() -> None:
    records = [Record(str(i), "u8", (n,)) for i, n in enumerate((4, 4, 9, 1, 1, 1))]
    runs = list(shards(records, 8))
    assert [[r.name for r in run] for run in runs] == [["0", "1"], ["2"], ["3", "4", "5"]]
    assert list(shards([], 8)) == []
