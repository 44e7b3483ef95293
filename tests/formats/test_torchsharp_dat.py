from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fourge.core.errors import FormatError
from fourge.formats.stored import NVFP4, Stored, in_memory
from fourge.formats.torchsharp_dat import read_dat, read_entries, uleb128, write_dat
from fourge.nvfp4.matrix import Nvfp4Matrix, dequantize, quantize


def entry(name: str, code: int, shape: tuple[int, ...], data: bytes) -> bytes:
    raw = name.encode()
    numbers = b"".join(map(uleb128, (code, len(shape), *shape)))
    return uleb128(len(raw)) + raw + numbers + data


def file_of(*entries: bytes) -> bytes:
    return uleb128(len(entries)) + b"".join(entries)


def original_file(path: Path) -> bytes:
    """As the F# system's exporter lays it out: single-level pairs, float16 for the rest."""
    matrix = quantize(torch.randn(4, 32), tensor_scale=torch.ones(()))
    codes, scale = matrix.packed_RC.numpy(), matrix.block_scale_RB.view(torch.uint8).numpy()
    half = torch.randn(3, 5).to(torch.float16).numpy()
    data = file_of(
        entry("model.embed_tokens.weight", 5, (3, 5), half.tobytes()),
        entry("model.layers.0.mlp.up_proj.weight.qdata", 0, (4, 16), codes.tobytes()),
        entry("model.layers.0.mlp.up_proj.weight.scale", 101, (4, 2), scale.tobytes()),
        entry("model.norm.weight", 5, (15,), half.tobytes()),
        entry("lm_head.weight.qdata", 0, (4, 16), codes.tobytes()),
        entry("lm_head.weight.scale", 101, (4, 2), scale.tobytes()),
    )
    path.write_bytes(data)
    return data


def test_the_originals_file_round_trips_byte_for_byte(tmp_path: Path) -> None:
    data = original_file(tmp_path / "a.dat")
    tensors = read_dat(tmp_path / "a.dat")
    assert list(tensors) == [
        "model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight", "model.norm.weight",
        "lm_head.weight",
    ]  # fmt: skip
    assert tensors["lm_head.weight"].kind == NVFP4
    write_dat(tmp_path / "b.dat", tensors, single_level=True)
    assert (tmp_path / "b.dat").read_bytes() == data


def test_the_header_bytes_are_those_of_the_original() -> None:
    """Check values from the real base file: 652 entries, and its last entry's header."""
    assert uleb128(652) == b"\x8c\x05"
    header = entry("lm_head.weight.scale", 101, (151936, 160), b"")
    assert header == b"\x14lm_head.weight.scale\x65\x02\x80\xa3\x09\xa0\x01"


def test_keys_without_the_word_weight_are_pairs_too(tmp_path: Path) -> None:
    matrix = quantize(torch.randn(2, 16), tensor_scale=torch.ones(()))
    scale = matrix.block_scale_RB.view(torch.uint8).numpy().tobytes()
    data = file_of(
        entry("p.qdata", 100, (2, 8), matrix.packed_RC.numpy().tobytes()),
        entry("p.scale", 101, (2, 1), scale),
    )
    (tmp_path / "a.dat").write_bytes(data)
    (name, stored), = read_dat(tmp_path / "a.dat").items()  # fmt: skip
    assert name == "p.weight"
    assert torch.equal(dequantize(stored.matrix()), dequantize(matrix))


def test_two_levels_are_kept_in_a_third_entry(tmp_path: Path) -> None:
    matrix = quantize(torch.randn(4, 32) * 1e-3)
    write_dat(tmp_path / "a.dat", {"m.weight": in_memory(matrix)}, single_level=False)
    assert list(read_entries(tmp_path / "a.dat")) == [
        "m.weight.qdata", "m.weight.scale", "m.weight.scale_2",
    ]  # fmt: skip
    again = read_dat(tmp_path / "a.dat")["m.weight"].matrix()
    assert torch.equal(dequantize(again), dequantize(matrix))


def test_a_second_level_is_refused_where_there_is_one(tmp_path: Path) -> None:
    stored = {"m.weight": in_memory(quantize(torch.randn(4, 32) * 1e-3))}
    with pytest.raises(FormatError, match="dat2"):
        write_dat(tmp_path / "a.dat", stored, single_level=True)


def test_dense_values_never_change(tmp_path: Path) -> None:
    """Float16 where it is exact, float32 where it is not; both are what the original reads."""
    tensors = {
        "half": torch.randn(4).to(torch.float16),
        "small": torch.tensor([1e-30, 2.0]).to(torch.bfloat16),
        "exact": torch.tensor([0.5, -3.0]).to(torch.bfloat16),
        "wide": torch.randn(5),
        "flag": torch.tensor([True, False]),
        "count": torch.tensor(7),
    }
    write_dat(tmp_path / "a", {n: in_memory(t) for n, t in tensors.items()}, single_level=True)
    again = read_dat(tmp_path / "a")
    assert {n: s.kind for n, s in again.items()} == {
        "half": "f16",
        "small": "f32",
        "exact": "f16",
        "wide": "f32",
        "flag": "bool",
        "count": "i64",
    }
    for name, tensor in tensors.items():
        assert torch.equal(again[name].dense().to(tensor.dtype), tensor)


@given(st.integers(0, (1 << 64) - 1))
def test_uleb128_is_the_shortest_form(value: int) -> None:
    raw = uleb128(value)
    assert sum((byte & 0x7F) << (7 * i) for i, byte in enumerate(raw)) == value
    assert len(raw) == 1 or raw[-1] != 0


def test_a_name_that_is_not_ascii_is_counted_in_bytes(tmp_path: Path) -> None:
    write_dat(tmp_path / "a", {"名": in_memory(torch.ones(1))}, single_level=True)
    assert (tmp_path / "a").read_bytes()[1] == 3
    assert list(read_dat(tmp_path / "a")) == ["名"]


@pytest.mark.filterwarnings("ignore")  # bitsandbytes' own
@pytest.mark.parametrize("flat", [True, False])
def test_nf4_decodes_as_bitsandbytes_decodes_it(tmp_path: Path, flat: bool) -> None:
    import bitsandbytes.functional as bnb

    weight = torch.randn(8, 128)
    packed, state = bnb.quantize_4bit(weight, blocksize=64, quant_type="nf4")
    expected = bnb.dequantize_4bit(packed, state)
    stored = {
        "m.weight": in_memory(packed.view(-1, 1) if flat else packed.view(8, 64)),
        "m.absmax": in_memory(state.absmax),
        "m.quant_map": in_memory(state.code),
        "m.bias": in_memory(torch.ones(8)),
    }
    write_dat(tmp_path / "a.dat", stored, single_level=True)
    tensors = read_dat(tmp_path / "a.dat")
    assert set(tensors) == {"m.weight", "m.bias"}
    assert torch.equal(tensors["m.weight"].dense().view(8, 128), expected)
    assert tensors["m.weight"].shape == ((1024,) if flat else (8, 128))


def test_an_incomplete_nf4_weight_is_refused(tmp_path: Path) -> None:
    stored: dict[str, Stored] = {"m.absmax": in_memory(torch.ones(4))}
    write_dat(tmp_path / "a.dat", stored, single_level=True)
    with pytest.raises(FormatError, match="incomplete NF4"):
        read_dat(tmp_path / "a.dat")


def test_the_matrix_type_is_what_is_read(tmp_path: Path) -> None:
    original_file(tmp_path / "a.dat")
    assert isinstance(read_dat(tmp_path / "a.dat")["lm_head.weight"].read(), Nvfp4Matrix)
