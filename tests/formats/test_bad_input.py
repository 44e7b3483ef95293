"""Each kind of damage is refused in words that name the file or the tensor and say why.

Every refusal here also proves that the file was not touched.
"""

import errno
import json
import os
import pickle
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fourge.core.errors import FormatError, OutputError
from fourge.core.files import whole_file, whole_folder
from fourge.formats.folder import INDEX, SINGLE, read_folder
from fourge.formats.gguf_file import to_runs
from fourge.formats.gguf_names import to_transformers
from fourge.formats.gguf_write import write_gguf
from fourge.formats.layout import COMPRESSED_TENSORS, join
from fourge.formats.stored import in_memory
from fourge.model.source import open_source
from fourge.nvfp4.matrix import Nvfp4Matrix
from tests.formats import samples
from tests.formats.samples import (
    ARRAY,
    BLOCK_SCALES,
    COLS,
    COMPLEX64,
    FLOAT32,
    KINDS,
    ROWS,
    STRING,
    SUFFIX,
    U32,
    Piece,
    array,
    build,
    dat_entry,
    dat_file,
    entry,
    floats,
    gguf_file,
    gguf_pairs,
    leb,
    opened,
    pair,
    pieces_of,
    read_everything,
    safetensors,
    with_header,
)

PETABYTE = 1 << 50
ENDLESS = b"\x80" * 40
F32_GGUF = Piece(samples.F32, (2,), floats(1.0, 2.0))


def refusal(path: Path, data: bytes) -> str:
    """What is said of a file with this content, which has to stay as it is."""
    path.write_bytes(data)
    os.utime(path, ns=(1, 1))
    with pytest.raises(FormatError) as caught:
        read_everything(path)
    assert path.read_bytes() == data
    assert path.stat().st_mtime_ns == 1
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    return str(caught.value)


def assert_says(said: str, *words: str) -> None:
    assert [word for word in words if word not in said] == [], said


def changed(kind: str, name: str, /, **changes: Any) -> bytes:
    """A sound file of a kind, but for one of its pieces."""
    pieces = pieces_of(kind)
    pieces[name] = replace(pieces[name], **changes)
    return build(kind, pieces)


def without(kind: str, name: str) -> bytes:
    """A sound file of a kind, but for a piece that is missing."""
    pieces = pieces_of(kind)
    del pieces[name]
    return build(kind, pieces)


# --- every format ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_cut_anywhere_is_refused(tmp_path: Path, kind: str) -> None:
    data = build(kind, pieces_of(kind))
    for nbytes in range(0, len(data) - samples.ALIGNMENT, 29):
        said = refusal(tmp_path / f"cut{SUFFIX[kind]}", data[:nbytes])
        assert_says(said, f"cut{SUFFIX[kind]} is cut short", "why: ")


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_cut_after_it_was_opened_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"model{SUFFIX[kind]}"
    path.write_bytes(build(kind, pieces_of(kind)))
    tensors = opened(path)
    os.truncate(path, 10)
    for stored in tensors.values():
        with pytest.raises(FormatError, match=f"{path.name} became shorter"):
            stored.read()


@pytest.mark.parametrize("suffix", sorted(set(SUFFIX.values())))
def test_a_folder_or_a_pipe_is_not_a_file(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"folder{suffix}").mkdir()
    os.mkfifo(tmp_path / f"pipe{suffix}")
    for name in ("folder", "pipe"):
        with pytest.raises(FormatError, match=f"{name}{suffix} is not a file"):
            read_everything(tmp_path / f"{name}{suffix}")


def test_a_disk_that_fails_is_said_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "preadv", fail)
    said = refusal(tmp_path / "a.dat", build("dat", pieces_of("dat")))
    assert_says(said, "a.dat could not be read", "Input/output error")


# --- safetensors -------------------------------------------------------------------------------

TWO = entry("F32", (2,), 0, 8)
SAFETENSORS_DAMAGE = {
    "a header of petabytes": (PETABYTE.to_bytes(8, "little") + b"{}", [str(PETABYTE), "10"]),
    "a header of 2**64 bytes": (b"\xff" * 8 + b"{}", ["announces"]),
    "a tensor of petabytes": (
        with_header({"a": entry("U8", (PETABYTE,), 0, PETABYTE)}), [str(PETABYTE), "it has 0"],
    ),
    "an empty tensor of petabytes": (
        with_header({"a": entry("U8", (0, PETABYTE, PETABYTE), 0, 0)}), ["'a'", "cannot be"],
    ),
    "a tensor of a million dimensions": (
        with_header({"a": entry("U8", (9,) * 1_000_000, 0, 1)}), ["'a'", "cannot be"],
    ),
    "a name twice": (
        with_header(f'{{"a": {json.dumps(TWO)}, "a": {json.dumps(TWO)}}}', bytes(8)),
        ["'a' is there twice"],
    ),
    "a field twice": (with_header('{"a": {"dtype": "U8", "dtype": "F32"}}'), ["'dtype'", "twice"]),
    "an unknown type": (
        with_header({"a": entry("F3_E1M1", (2,), 0, 8)}, bytes(8)), ["'a'", "'F3_E1M1'", "unknown"],
    ),
    "a type that is no name": (
        with_header({"a": TWO | {"dtype": ["F32"]}}, bytes(8)), ["'a'", "incomplete"],
    ),
    "an overlap": (
        with_header({"a": TWO, "b": entry("F32", (2,), 4, 12)}, bytes(12)), ["byte 8", "twice"],
    ),
    "a gap": (
        with_header({"a": TWO, "b": entry("F32", (2,), 12, 20)}, bytes(20)),
        ["byte 8", "not at all"],
    ),
    "a rest": (with_header({"a": TWO}, bytes(12)), ["take 8 bytes", "has 12"]),
    "offsets that run backwards": (
        with_header({"a": entry("F32", (2,), 8, 0)}, bytes(8)), ["'a'", "in -8 bytes"],
    ),
    "a shape that does not fit": (
        with_header({"a": entry("F32", (3,), 0, 8)}, bytes(8)), ["'a' is (3,) of f32 in 8 bytes"],
    ),
    "a negative size": (
        with_header({"a": entry("F32", (-2, -1), 0, 8)}, bytes(8)), ["'a'", "size that cannot be"],
    ),
    "a size that is no number": (
        with_header({"a": TWO | {"shape": [True, 2.0]}}, bytes(8)), ["size that cannot be"],
    ),
    "a shape that is no list": (
        with_header({"a": TWO | {"shape": {}}}, bytes(8)), ["'a'", "size that cannot be"],
    ),
    "three offsets": (
        with_header({"a": TWO | {"data_offsets": [0, 4, 8]}}, bytes(8)), ["'a'", "incomplete"],
    ),
    "an entry without a type": (
        with_header({"a": {"shape": [2], "data_offsets": [0, 8]}}, bytes(8)), ["'a'", "'dtype'"],
    ),
    "an entry that is no object": (with_header({"a": 7}), ["'a'", "incomplete"]),
    "a header that is no object": (with_header("[]"), ["not a JSON object"]),
    "a header that is not JSON": (with_header("{'a'"), ["not JSON"]),
    "a header nested too deep": (with_header("[" * 100_000), ["not JSON"]),
    "a number of 5000 digits": (with_header('{"a": ' + "9" * 5000 + "}"), ["not JSON"]),
    "a header in UTF-16": (
        struct.pack("<Q", 4) + "{}".encode("utf-16-le"), ["not JSON"],
    ),
    "a name that cannot be printed": (
        with_header('{"\\ud800": ' + json.dumps(TWO) + "}", bytes(8)), [r"'\ud800'", "utf-8"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", SAFETENSORS_DAMAGE)
def test_a_damaged_safetensors_header_is_refused(tmp_path: Path, damage: str) -> None:
    data, words = SAFETENSORS_DAMAGE[damage]
    said = refusal(tmp_path / "bad.safetensors", data)
    assert_says(said, "bad.safetensors", *words)
    said.encode()  # it can be printed


def test_a_header_that_would_fill_the_memory_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.safetensors"
    path.write_bytes(((1 << 30) - 8).to_bytes(8, "little"))
    os.truncate(path, 1 << 30)  # all of it a hole: no disk is used
    with pytest.raises(FormatError, match=r"(?s)large\.safetensors .* header announces"):
        read_everything(path)


# --- GGUF --------------------------------------------------------------------------------------

LONG = struct.pack("<Q", PETABYTE)


def gguf_head(tensors: int = 0, pairs: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, pairs)


def gguf_two_at(second: int) -> bytes:
    """Two tensors of 8 bytes; the first lies at 0."""
    infos = samples.info("t", F32_GGUF, 0) + samples.info("u", F32_GGUF, second)
    head = gguf_head(tensors=2) + infos
    return head + bytes(-len(head) % samples.ALIGNMENT) + bytes(128)


def gguf_tensor(kind: int, shape: tuple[int, ...], data: bytes = b"") -> bytes:
    return gguf_file(gguf_pairs(), [("t.weight", Piece(kind, shape, data))])


def nested(depth: int) -> bytes:
    value = array(U32, [])
    for _ in range(depth):
        value = array(ARRAY, [value])
    return value


GGUF_DAMAGE = {
    "another beginning": (b"GGML" + bytes(100), ["is not a GGUF", "does not begin with GGUF"]),
    "an unknown version": (gguf_head(version=99), ["version 99"]),
    "another byte order": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), ["version 50331648"]),
    "petabytes of tensors": (gguf_head(tensors=PETABYTE) + bytes(64), ["''", "twice"]),
    "petabytes of tensors and no more": (gguf_head(tensors=PETABYTE), ["0 are left"]),
    "petabytes of metadata": (gguf_head(pairs=PETABYTE), ["0 are left"]),
    "a key of petabytes": (gguf_head(pairs=1) + LONG, [str(PETABYTE), "0 are left"]),
    "a string of petabytes": (
        gguf_head(pairs=1) + pair("k", STRING, LONG), [str(PETABYTE), "0 are left"],
    ),
    "an array of petabytes": (
        gguf_head(pairs=1) + pair("k", ARRAY, struct.pack("<I", U32) + LONG),
        [str(4 * PETABYTE), "0 are left"],
    ),
    "an array of petabytes of strings": (
        gguf_head(pairs=1) + pair("k", ARRAY, struct.pack("<I", STRING) + LONG),
        [f"an array of {PETABYTE} elements"],
    ),
    "a name of petabytes": (gguf_head(tensors=1) + LONG, [str(PETABYTE), "0 are left"]),
    "a tensor of petabytes": (gguf_tensor(samples.F32, (PETABYTE,)), ["'t.weight' ends at byte"]),
    "a tensor of impossible size": (
        gguf_tensor(samples.F32, (PETABYTE, PETABYTE)), ["'t.weight' is F32", "cannot be"],
    ),
    "an empty tensor of petabytes": (
        gguf_tensor(samples.F32, (0, PETABYTE, PETABYTE)), ["'t.weight' is F32", "cannot be"],
    ),
    "a tensor that lies beyond the end": (
        gguf_head(tensors=1) + samples.info("t.weight", F32_GGUF, PETABYTE) + bytes(64),
        ["'t.weight' ends at byte"],
    ),
    "tensors that overlap": (gguf_two_at(0), ["'u' lies at 0", "inside another"]),
    "a tensor that is not aligned": (gguf_two_at(8), ["'u' lies at 8", "aligned"]),
    "a key twice": (gguf_file([pair("k", U32, bytes(4))] * 2, []), ["'k' is there twice"]),
    "a tensor twice": (gguf_file([], [("t", F32_GGUF)] * 2), ["'t' is there twice"]),
    "an unknown tensor type": (gguf_tensor(77, (2,), bytes(8)), ["'t.weight'", "77", "unknown"]),
    "a tensor type that is not decoded": (gguf_tensor(15, (256,), bytes(292)), ["Q8_K"]),
    "an unknown metadata type": (gguf_file([pair("k", 77, b"")], []), ["77", "unknown"]),
    "arrays in arrays in arrays": (gguf_file([pair("k", ARRAY, nested(9))], []), ["too deep"]),
    "five dimensions": (gguf_tensor(samples.F32, (1,) * 5, bytes(4)), ["'t.weight'", "5 dimens"]),
    "a key that is not text": (
        gguf_head(pairs=1) + struct.pack("<Q", 2) + b"\xff\xfe" + bytes(8), ["UTF-8"],
    ),
    "data aligned to nothing": (
        gguf_file([pair("general.alignment", U32, bytes(4))], []), ["aligned to 0"],
    ),
    "blocks that are not whole": (
        gguf_tensor(samples.Q8_0, (2, 48), bytes(102)), ["'t.weight'", "blocks of 32"],
    ),
    "a quantised tensor without values": (
        gguf_tensor(samples.Q8_0, (2, 0)), ["'t.weight'", "blocks of 32"],
    ),
    "NVFP4 of 48 columns": (
        gguf_tensor(samples.NVFP4, (4, 48), bytes(108)), ["'t.weight'", "(4, 48)", "blocks of 64"],
    ),
    "NVFP4 that is a vector": (
        gguf_tensor(samples.NVFP4, (64,), bytes(36)), ["'t.weight'", "(64,)", "cannot be"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", GGUF_DAMAGE)
def test_a_damaged_gguf_is_refused(tmp_path: Path, damage: str) -> None:
    data, words = GGUF_DAMAGE[damage]
    assert_says(refusal(tmp_path / "bad.gguf", data), "bad.gguf", *words)


@pytest.mark.parametrize(
    ("name", "architecture", "shape"),
    [("blk.0.attn_q.weight", "llama", (3, 8)), ("blk.0.attn_q.weight", "llama", (0, 8)),
     ("blk.0.attn_k.weight", "llama", (1 << 40, 0))],
)  # fmt: skip
def test_rows_that_are_not_heads_are_refused(
    name: str, architecture: str, shape: tuple[int, ...]
) -> None:
    stored = replace(in_memory(torch.zeros(1)), shape=shape)
    ((new, renamed),) = to_transformers({name: stored}, architecture, 2, 2).items()
    with pytest.raises(FormatError, match=f"{new.removesuffix('.weight')}: .*do not divide"):
        renamed.read()


def test_a_norm_that_is_a_single_number_can_be_listed() -> None:
    norm = {"output_norm.weight": in_memory(torch.ones(()))}
    assert to_transformers(norm, "gemma3", 1, 1)["model.norm.weight"].nbytes == 4


def test_columns_that_are_not_whole_runs_are_not_written_as_gguf(tmp_path: Path) -> None:
    matrix = Nvfp4Matrix(
        torch.zeros(4, 24, dtype=torch.uint8),
        torch.ones(4, 3).to(torch.float8_e4m3fn),
        torch.ones(()),
    )
    metadata = {"general.architecture": "llama"}
    with pytest.raises(FormatError, match=r"(?s)runs of 64; blk\.0\.x has 48 columns.*--keep"):
        write_gguf(tmp_path / "out.gguf", {"blk.0.x": in_memory(matrix)}, metadata)
    with pytest.raises(FormatError, match="has 48 columns"):
        to_runs(matrix)
    assert list(tmp_path.iterdir()) == []


# --- TorchSharp --------------------------------------------------------------------------------


def dat_start(*numbers: int) -> bytes:
    """A file of one entry called x, up to some number in it."""
    return leb(1) + leb(1) + b"x" + b"".join(map(leb, numbers))


DENSE = Piece(FLOAT32, (2,), floats(1.0, 2.0))
NO_END = "does not end within 64 bits"
DAT_DAMAGE = {
    "an endless count": (ENDLESS, [NO_END]),
    "an endless name": (leb(1) + ENDLESS, [NO_END]),
    "an endless type": (dat_start() + ENDLESS, [NO_END]),
    "endless dimensions": (dat_start(FLOAT32) + ENDLESS, [NO_END]),
    "an endless dimension": (dat_start(FLOAT32, 1) + ENDLESS, [NO_END]),
    "a number of 65 bits": (b"\xff" * 9 + b"\x02", [NO_END]),
    "petabytes of entries": (leb(PETABYTE), ["0 are left"]),
    "a name of petabytes": (leb(1) + leb(PETABYTE), [f"a name of {PETABYTE} bytes"]),
    "a tensor of petabytes": (dat_start(FLOAT32, 1, PETABYTE), [str(4 * PETABYTE), "0 are left"]),
    "an empty tensor of petabytes": (
        dat_start(FLOAT32, 3, 0, PETABYTE, PETABYTE), ["'x'", "cannot be"],
    ),
    "a dimension that torch cannot count": (
        dat_start(FLOAT32, 2, 0, 1 << 63), ["'x'", "cannot be"],
    ),
    "17 dimensions": (dat_start(FLOAT32, 17), ["'x' has 17 dimensions"]),
    "a name twice": (dat_file([("x", DENSE)] * 2), ["'x' is there twice"]),
    "an unknown type": (dat_start(55, 0), ["'x' has element type 55, which is unknown"]),
    "a name that is not text": (leb(1) + leb(2) + b"\xff\xfe" + leb(0), ["UTF-8"]),
    "bytes after the end": (dat_file([("x", DENSE)]) + b"!", ["1 bytes follow the last entry"]),
    "fewer entries than announced": (leb(2) + dat_entry("x", DENSE), ["0 are left"]),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAT_DAMAGE)
def test_a_damaged_dat_is_refused(tmp_path: Path, damage: str) -> None:
    data, words = DAT_DAMAGE[damage]
    assert_says(refusal(tmp_path / "bad.dat", data), "bad.dat is cut short or damaged", *words)


INCOMPLETE = "c is an incomplete NF4 weight"
NF4_DAMAGE = {
    "no table": (without("dat", "c.quant_map"), INCOMPLETE),
    "no codes": (without("dat", "c.weight"), INCOMPLETE),
    "codes of another type": (
        changed("dat", "c.weight", kind=FLOAT32, shape=(16, 1)), INCOMPLETE,
    ),
    "a table of 8": (
        changed("dat", "c.quant_map", shape=(8,), data=bytes(32)), INCOMPLETE,
    ),
    "complex scales": (
        changed("dat", "c.absmax", kind=COMPLEX64, shape=(1,)), INCOMPLETE,
    ),
    "scales that are quantised again": (
        changed("dat", "c.absmax", kind=samples.BYTE, shape=(8,)), INCOMPLETE,
    ),
    "blocks that are not whole": (
        changed("dat", "c.absmax", shape=(3,), data=bytes(12)), "128 codes do not divide into 3",
    ),
    "no blocks": (changed("dat", "c.absmax", shape=(0,), data=b""), "into 0 blocks"),
    "no values": (changed("dat", "c.weight", shape=(0,), data=b""), "0 codes do not"),
}  # fmt: skip


@pytest.mark.parametrize("damage", NF4_DAMAGE)
def test_a_damaged_nf4_weight_is_refused(tmp_path: Path, damage: str) -> None:
    data, words = NF4_DAMAGE[damage]
    assert_says(refusal(tmp_path / "bad.dat", data), words)


# --- the pieces of an NVFP4 weight --------------------------------------------------------------

PIECES = {  # codes, block scales, tensor scale
    "compressed-tensors": ("a.weight_packed", "a.weight_scale", "a.weight_global_scale"),
    "modelopt": ("a.weight", "a.weight_scale", "a.weight_scale_2"),
    "dat": ("a.weight.qdata", "a.weight.scale", "a.weight.scale_2"),
}
LAYOUTS = tuple(PIECES)


@pytest.mark.parametrize(
    ("kind", "piece"),
    [(kind, piece) for kind in LAYOUTS for piece in (1, 2) if (kind, piece) != ("dat", 2)],
)
def test_a_weight_without_one_of_its_scales_is_refused(
    tmp_path: Path, kind: str, piece: int
) -> None:
    name = PIECES[kind][piece]
    said = refusal(tmp_path / f"bad{SUFFIX[kind]}", without(kind, name))
    assert_says(said, f"{name} is missing", f"in the {kind} layout")


@pytest.mark.parametrize("kind", ["compressed-tensors", "dat"])
def test_codes_without_any_scale_are_refused(tmp_path: Path, kind: str) -> None:
    codes, scale, _ = PIECES[kind]
    said = refusal(tmp_path / f"bad{SUFFIX[kind]}", build(kind, {codes: pieces_of(kind)[codes]}))
    assert_says(said, f"{scale} is missing", codes)


@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("shape", [(ROWS, 1), (ROWS // 2, COLS // 8), (COLS // 16 * ROWS,), ()])
def test_block_scales_of_another_shape_are_refused(
    tmp_path: Path, kind: str, shape: tuple[int, ...]
) -> None:
    nbytes = torch.Size(shape).numel()
    name = PIECES[kind][1]
    data = changed(kind, name, shape=shape, data=bytes(nbytes))
    said = refusal(tmp_path / f"bad{SUFFIX[kind]}", data)
    assert_says(said, f"{name} has shape {shape}", f"{ROWS} x {COLS} values need")


@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("shape", [(ROWS * COLS // 2,), (), (ROWS, 3), (0, 8), (4, 0), (2, 2, 32)])
def test_codes_of_a_shape_that_is_no_matrix_of_blocks_are_refused(
    tmp_path: Path, kind: str, shape: tuple[int, ...]
) -> None:
    codes, scale, _ = PIECES[kind]
    pieces = pieces_of(kind)
    pieces[codes] = replace(pieces[codes], shape=shape, data=bytes(torch.Size(shape).numel()))
    pieces[scale] = replace(pieces[scale], shape=(0, 0), data=b"")
    said = refusal(tmp_path / f"bad{SUFFIX[kind]}", build(kind, pieces))
    assert_says(said, f"{codes} is not NVFP4", str(shape))


@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("piece", [0, 1])
def test_pieces_of_another_type_are_refused(tmp_path: Path, kind: str, piece: int) -> None:
    name = PIECES[kind][piece]
    nbytes = 8 * len(pieces_of(kind)[name].data)
    data = changed(kind, name, kind=4 if kind == "dat" else "I64", data=bytes(nbytes))
    said = refusal(tmp_path / f"bad{SUFFIX[kind]}", data)
    assert_says(said, f"{PIECES[kind][0]} is not NVFP4", "i64")


@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("byte", [0x7F, 0xFF])
def test_a_block_scale_that_is_not_a_number_is_refused(
    tmp_path: Path, kind: str, byte: int
) -> None:
    name = PIECES[kind][1]
    data = changed(kind, name, data=BLOCK_SCALES[:-1] + bytes([byte]))
    said = refusal(tmp_path / f"bad{SUFFIX[kind]}", data)
    assert_says(said, f"{name} has a scale that is not a number")


SCALES = ((0.0, "0.0"), (-1.0, "-1.0"), (float("nan"), "nan"), (float("inf"), "inf"))


@pytest.mark.parametrize(("value", "words"), SCALES)
@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, pieces[2]) for kind, pieces in PIECES.items()]
    + [("compressed-tensors", "a.input_global_scale"), ("modelopt", "a.input_scale")]
    + [("gguf", "blk.0.attn_q.scale")],
)
def test_a_tensor_scale_that_is_not_positive_is_refused(
    tmp_path: Path, kind: str, name: str, value: float, words: str
) -> None:
    data = changed(kind, name, data=floats(value))
    said = refusal(tmp_path / f"bad{SUFFIX[kind]}", data)
    assert_says(said, f"{name} is not a scale", "one positive number is needed", words)


def test_a_scale_whose_reciprocal_is_infinite_is_refused(tmp_path: Path) -> None:
    name = "a.weight_global_scale"
    data = changed("compressed-tensors", name, data=floats(1e-39))
    assert_says(refusal(tmp_path / "bad.safetensors", data), f"{name} is not a scale")


@pytest.mark.parametrize("value", [1e-300, 1e300])
def test_a_scale_that_float32_cannot_hold_is_refused(tmp_path: Path, value: float) -> None:
    data = changed("modelopt", "a.weight_scale_2", kind="F64", data=struct.pack("<d", value))
    assert_says(refusal(tmp_path / "bad.safetensors", data), "a.weight_scale_2 is not a scale")


@pytest.mark.parametrize(
    ("piece", "words"),
    [
        (Piece(FLOAT32, (2,), floats(1.0, 1.0)), "(2,)"),
        (Piece(FLOAT32, (0,), b""), "(0,)"),
        (Piece(samples.BYTE, (), b"\1"), "uint8"),
        (Piece(COMPLEX64, (), floats(1.0, 0.0)), "complex64"),
    ],
)
def test_a_tensor_scale_is_one_floating_point_number(
    tmp_path: Path, piece: Piece, words: str
) -> None:
    data = changed("dat", "a.weight.scale_2", **vars(piece))
    assert_says(refusal(tmp_path / "bad.dat", data), "a.weight.scale_2 is not a scale", words)


def test_a_gguf_scale_of_two_numbers_is_refused(tmp_path: Path) -> None:
    data = changed("gguf", "blk.0.attn_q.scale", shape=(2,), data=floats(1.0, 2.0))
    assert_says(refusal(tmp_path / "bad.gguf", data), "blk.0.attn_q.weight", "(2,)")


@pytest.mark.parametrize("dense_first", [True, False])
def test_a_weight_that_is_there_in_two_forms_is_refused(tmp_path: Path, dense_first: bool) -> None:
    dense = {"a.weight": Piece("F32", (2,), floats(1.0, 2.0))}
    packed = samples.compressed_tensors()
    data = safetensors(dense | packed if dense_first else packed | dense)
    assert_says(refusal(tmp_path / "bad.safetensors", data), "a.weight is there twice")


def test_a_dense_weight_beside_quantised_ones_is_not_taken_for_damage() -> None:
    dense = {"b.weight": in_memory(torch.ones(2, 2))}
    assert join(dense, COMPRESSED_TENSORS) == dense


# --- folders -----------------------------------------------------------------------------------

CONFIG = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4}


def folder_with(path: Path, **files: Any) -> Path:
    """A folder of JSON files; ``config_json`` is config.json."""
    path.mkdir(exist_ok=True)
    for name, content in files.items():
        (path / name.replace("_json", ".json")).write_text(json.dumps(content))
    return path


def state_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def folder_refusal(folder: Path, read: Callable[[Path], object] = read_folder) -> str:
    before = state_of(folder)
    with pytest.raises(FormatError) as caught:
        read(folder)
    assert state_of(folder) == before
    return str(caught.value)


@pytest.mark.parametrize("read", [read_folder, open_source])
@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt"])
def test_pickled_weights_are_refused_and_not_run(
    tmp_path: Path, name: str, read: Callable[[Path], object]
) -> None:
    folder = folder_with(tmp_path / "m", config_json=CONFIG, tokenizer_json={})
    (folder / name).write_bytes(pickle.dumps(Trap(tmp_path / "ran")))
    said = folder_refusal(folder, read)
    assert_says(said, str(folder), "pickle", "can run code", "safe_serialization")
    assert not (tmp_path / "ran").exists()


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_an_index_that_names_a_missing_shard_is_refused(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "m")
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": "gone.safetensors"}}))
    assert_says(folder_refusal(folder), "gone.safetensors could not be read", "No such file")


@pytest.mark.parametrize(
    "shard",
    ["../out.safetensors", "/etc/passwd", "..", ".", "", "sub/x.safetensors", "config.json",
     "a\0b.safetensors", "\ud800.safetensors", 7, None, ["model.safetensors"], {}],
)  # fmt: skip
def test_an_index_that_names_anything_but_a_shard_beside_it_is_refused(
    tmp_path: Path, shard: Any
) -> None:
    folder = folder_with(tmp_path / "m", config_json=CONFIG)
    (tmp_path / "out.safetensors").write_bytes(safetensors(samples.modelopt()))
    weight_map = {"a": "model.safetensors", "b": shard}
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    assert_says(folder_refusal(folder), INDEX, "does not name the files", "weight_map")


@pytest.mark.parametrize("content", ["{}", '{"weight_map": {}}', '{"weight_map": ["a"]}'])
def test_an_index_without_a_map_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / INDEX).write_text(content)
    assert_says(folder_refusal(tmp_path), INDEX, "does not name the files")


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
def test_an_index_that_is_no_json_object_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / INDEX).write_bytes(content)
    assert_says(folder_refusal(tmp_path), INDEX, "JSON")


def test_a_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.safetensors").write_bytes(safetensors({"a": Piece("U8", (1,), b"1")}))
    weight_map = {"a": "one.safetensors", "b": "two.safetensors"}
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    assert_says(folder_refusal(tmp_path), "two.safetensors has 'a'", "another shard")


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    assert_says(folder_refusal(tmp_path), str(tmp_path), "no weights", SINGLE, INDEX)


def test_weights_that_are_a_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / SINGLE).mkdir()
    assert_says(folder_refusal(tmp_path), f"{SINGLE} is not a file")


# --- models ------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [SINGLE, "model.dat"])
def test_a_model_without_a_config_is_refused(tmp_path: Path, weights: str) -> None:
    folder = folder_with(tmp_path / "m", tokenizer_json={})
    (folder / weights).write_bytes(bytes(8))
    said = folder_refusal(folder, open_source)
    assert_says(said, "config.json could not be read", "a model folder needs it")


@pytest.mark.parametrize("content", [{}, {"model_type": "no such model"}, [], "llama"])
def test_a_config_that_is_no_models_is_refused(tmp_path: Path, content: object) -> None:
    folder = folder_with(tmp_path / "m", config_json=content, tokenizer_json={})
    assert_says(folder_refusal(folder, open_source), "config.json is not a")


@pytest.mark.parametrize("weights", [SINGLE, "model.dat"])
def test_a_model_without_a_tokenizer_is_refused(tmp_path: Path, weights: str) -> None:
    folder = folder_with(tmp_path / "m", config_json=CONFIG)
    (folder / weights).write_bytes((2).to_bytes(8, "little") + b"{}")
    said = folder_refusal(folder, open_source)
    assert_says(said, f"{folder} has no tokenizer", "tokenizer.json", "copy the tokenizer")


def test_a_path_with_nothing_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"(?s)nothing does not exist.*fix: give a folder"):
        open_source(tmp_path / "nothing")


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(FormatError, match=r"notes\.txt is not a model"):
        open_source(tmp_path / "notes.txt")


# --- outputs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [whole_file, whole_folder])
@pytest.mark.parametrize("name", ["file/out", "n" * 300, "n" * 250])
def test_an_output_that_cannot_have_its_name_is_refused(
    tmp_path: Path, name: str, whole: Callable[..., Any]
) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(OutputError) as caught, whole(tmp_path / name) as temporary:
        (temporary / "a" if temporary.is_dir() else temporary).write_text("new")
    assert_says(str(caught.value), f"{name} could not be written: ", "fix: ")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize("name", ["", ".", "..", "/"])
def test_where_we_stand_is_never_an_output(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with (
        pytest.raises(OutputError, match="not a name for an output"),
        whole_folder(Path(name), overwrite=True),
    ):
        pytest.fail("the block must not run")


def test_a_file_does_not_take_the_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("kept")
    with (
        pytest.raises(OutputError, match="out is a folder"),
        whole_file(tmp_path / "out", overwrite=True),
    ):
        pytest.fail("the block must not run")
    assert (tmp_path / "out" / "precious").read_text() == "kept"
