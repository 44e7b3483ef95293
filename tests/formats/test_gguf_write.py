from pathlib import Path

import gguf
import pytest
import torch

from fourge.core.errors import FormatError
from fourge.formats.gguf_file import read_gguf
from fourge.formats.gguf_write import write_gguf
from fourge.formats.stored import in_memory
from fourge.nvfp4.matrix import quantize

METADATA = {
    "general.architecture": "llama",
    "general.file_type": 3,
    "llama.rope.freq_base": 1e4,
    "llama.block_count": 2,
    "flag": False,
    "tokens": ["a", "字"],
    "numbers": [1, 2],
    "empty": [],
    "offset": -3,
}


def test_metadata_is_written_as_it_was_read(tmp_path: Path) -> None:
    write_gguf(tmp_path / "a.gguf", {"n.weight": in_memory(torch.ones(4))}, METADATA)
    again, _ = read_gguf(tmp_path / "a.gguf")
    expected = {k: v for k, v in METADATA.items() if v != []} | {"general.file_type": 39}
    assert again == expected
    fields = gguf.GGUFReader(tmp_path / "a.gguf").fields
    assert fields["tokens"].contents() == ["a", "字"]


def test_matrices_keep_their_form_and_vectors_become_float32(tmp_path: Path) -> None:
    tensors = {
        "bf16.weight": torch.randn(4, 32).to(torch.bfloat16),
        "f16.weight": torch.randn(4, 32).to(torch.float16),
        "f32.weight": torch.randn(4, 32),
        "norm.weight": torch.randn(32).to(torch.bfloat16),
        "q.input_scale": torch.tensor(0.5),
    }
    stored = {name: in_memory(value) for name, value in tensors.items()}
    stored["q.weight"] = in_memory(quantize(torch.randn(2, 64)))
    write_gguf(tmp_path / "a.gguf", stored, METADATA)
    types = {t.name: t.tensor_type.name for t in gguf.GGUFReader(tmp_path / "a.gguf").tensors}
    assert types == {
        "bf16.weight": "BF16", "f16.weight": "F16", "f32.weight": "F32", "norm.weight": "F32",
        "q.input_scale": "F32", "q.weight": "NVFP4", "q.scale": "F32",
    }  # fmt: skip
    _, again = read_gguf(tmp_path / "a.gguf")
    for name, value in tensors.items():
        assert torch.equal(again[name].dense().flatten().to(value.dtype), value.flatten())


def test_columns_must_divide_into_runs_of_64(tmp_path: Path) -> None:
    stored = {"w.weight": in_memory(quantize(torch.randn(2, 48)))}
    with pytest.raises(FormatError, match=r"w\.weight has 48 columns"):
        write_gguf(tmp_path / "a.gguf", stored, METADATA)
    assert not (tmp_path / "a.gguf").exists()
