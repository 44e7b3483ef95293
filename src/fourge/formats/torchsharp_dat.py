"""TorchSharp's ``.dat``: a state dict as a plain run of tensors, and the NVFP4 and NF4 in it.

    file   := uleb128(count) entry*          no magic, version, checksum or alignment
    entry  := uleb128(name bytes) name uleb128(type) uleb128(ndim) uleb128(dim)* data

Types are TorchSharp's scalar types; 100 (a pair of E2M1 codes) and 101 (an E4M3 byte) were
added by the system whose files these are. A quantised weight is a pair of entries,
``<layer>.weight.qdata`` and ``<layer>.weight.scale``. That system knows a single level of
scale, so its files decode with a tensor scale of 1 (target ``dat``); a third entry
``<layer>.weight.scale_2`` holds ours where it is kept (target ``dat2``). An older
family holds bitsandbytes' NF4: ``.weight`` (two codes a byte, the first in the HIGH half),
``.absmax`` and ``.quant_map``.

Dense tensors are written as float16 if that loses nothing, else as float32: the original reads
both, and does not read bf16.
"""

from collections.abc import Iterator
from functools import partial
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from fourge.core.cursor import Cursor
from fourge.core.errors import FormatError
from fourge.core.files import ReadFile
from fourge.formats.layout import DAT, DAT_BARE, announced, join, parts
from fourge.formats.stored import (
    KIND_OF,
    KINDS,
    MAX_DIMS,
    NVFP4,
    Stored,
    Tensors,
    bytes_of,
    is_possible,
    tensor_from,
)

_KIND_OF_TYPE = {
    0: "u8", 1: "i8", 2: "i16", 3: "i32", 4: "i64", 5: "f16", 6: "f32", 7: "f64", 9: "c64",
    10: "c128", 11: "bool", 15: "bf16", 100: "u8", 101: "e4m3",
}  # fmt: skip
_TYPE_OF_KIND = {kind: code for code, kind in _KIND_OF_TYPE.items() if code != 100}
_MAX_NAME = 1 << 16
_FLOATS = ("f16", "bf16", "f32", "f64")


def read_dat(path: Path) -> dict[str, Stored]:
    """The tensors of a ``.dat``, with quantised weights put together as ``<layer>.weight``.

    Raises:
        FormatError: it is cut short, contradicts itself, or names a tensor twice.
    """
    tensors = join(read_entries(path), DAT, optional_scale=True)
    return _join_nf4(join(tensors, DAT_BARE, optional_scale=True))


def read_entries(path: Path) -> dict[str, Stored]:
    """The entries of a ``.dat`` as they lie in it."""
    file = ReadFile(path)
    cursor = Cursor(file)
    entries: dict[str, Stored] = {}
    for _ in range(cursor.leb128()):
        name, stored = _entry(cursor, file)
        if name in entries:
            cursor.fail(f"{name!r} is there twice")
        entries[name] = stored
    if cursor.left:
        cursor.fail(f"{cursor.left} bytes follow the last entry")
    return entries


def _entry(cursor: Cursor, file: ReadFile) -> tuple[str, Stored]:
    length = cursor.leb128()
    if length > _MAX_NAME:
        cursor.fail(f"a name of {length} bytes")
    name = cursor.text(length)
    code = cursor.leb128()
    if code not in _KIND_OF_TYPE:
        cursor.fail(f"{name!r} has element type {code}, which is unknown")
    dims = cursor.leb128()
    if dims > MAX_DIMS:
        cursor.fail(f"{name!r} has {dims} dimensions")
    shape = tuple(cursor.leb128() for _ in range(dims))
    if not is_possible(shape):
        cursor.fail(f"{name!r} has shape {shape}, which cannot be")
    kind = _KIND_OF_TYPE[code]
    nbytes = prod(shape) * KINDS[kind].itemsize
    start = cursor.skip(nbytes)
    return name, Stored(shape, kind, nbytes, partial(_read, file, start, nbytes, kind, shape))


def _read(file: ReadFile, start: int, nbytes: int, kind: str, shape: tuple[int, ...]) -> Tensor:
    return tensor_from(file.read_at(start, nbytes), kind, shape)


# --- NF4 ---------------------------------------------------------------------------------------


def _join_nf4(tensors: Tensors) -> dict[str, Stored]:
    joined = dict(tensors)
    for name in tensors:
        layer = name.removesuffix(".absmax")
        if layer == name:
            continue
        packed = joined.get(f"{layer}.weight")
        table = joined.pop(f"{layer}.quant_map", None)
        absmax = joined.pop(name)
        if (
            packed is None
            or table is None
            or (packed.kind, table.shape) != ("u8", (16,))
            or not {table.kind, absmax.kind} <= set(_FLOATS)
        ):
            raise FormatError(
                f"{layer} is an incomplete NF4 weight.",
                why="it is .weight (bytes), .absmax (floats) and .quant_map (16 floats)",
            )
        count = 2 * prod(packed.shape)
        blocks = prod(absmax.shape)
        if not count or not blocks or count % blocks:
            raise FormatError(f"{name}: {count} codes do not divide into {blocks} blocks.")
        # bitsandbytes keeps codes as one column; only the model knows the shape then.
        flat = len(packed.shape) != 2 or packed.shape[1] == 1
        shape = (count,) if flat else (packed.shape[0], 2 * packed.shape[1])
        read = partial(_decode_nf4, packed, absmax, table, shape)
        joined[f"{layer}.weight"] = Stored(shape, "f32", packed.nbytes + absmax.nbytes + 64, read)
    return joined


def _decode_nf4(packed: Stored, absmax: Stored, table: Stored, shape: tuple[int, ...]) -> Tensor:
    raw = packed.dense().flatten()
    codes = torch.stack([raw >> 4, raw & 0xF], dim=-1).flatten()
    scale = absmax.dense().flatten().float()
    values = table.dense().float()[codes.long()].view(len(scale), -1)
    return (values * scale.unsqueeze(-1)).view(shape)


# --- writing -----------------------------------------------------------------------------------


def write_dat(path: Path, tensors: Tensors, *, single_level: bool) -> None:
    """Write a ``.dat``, tensor by tensor.

    Raises:
        FormatError: ``single_level`` is asked for and a weight has a tensor scale other than 1.
    """
    counts = [len(announced(name, stored, DAT)) for name, stored in tensors.items()]
    pairs_only = sum(stored.kind == NVFP4 for stored in tensors.values()) if single_level else 0
    with path.open("wb") as file:
        file.write(uleb128(sum(counts) - pairs_only))
        for name, stored in tensors.items():
            for entry, value in _entries(name, stored, single_level=single_level):
                file.write(_header(entry, value))
                file.write(bytes_of(value))


def _entries(name: str, stored: Stored, *, single_level: bool) -> Iterator[tuple[str, Tensor]]:
    values = parts(name, stored, DAT)
    names = [record.name for record in announced(name, stored, DAT)]
    if stored.kind != NVFP4:
        yield names[0], _readable(values[0])
        return
    if single_level and values[2].item() != 1.0:
        raise FormatError(
            f"{name} has a tensor scale of {values[2].item():g}.",
            why="the original .dat has no place for it; rounding again would change the weight",
            fix="use --to dat2, which adds it, or convert from the dense model",
        )
    yield from zip(names[:2] if single_level else names, values, strict=False)


def _readable(value: Tensor) -> Tensor:
    """Float16 if every value survives it, else float32; other types as they are."""
    if not value.is_floating_point():
        return value
    half = value.to(torch.float16)
    return half if torch.equal(half.to(value.dtype), value) else value.to(torch.float32)


def _header(name: str, value: Tensor) -> bytes:
    raw = name.encode()
    numbers = (_TYPE_OF_KIND[KIND_OF[value.dtype]], value.dim(), *value.shape)
    return uleb128(len(raw)) + raw + b"".join(map(uleb128, numbers))


def uleb128(value: int) -> bytes:
    """An unsigned number in 7-bit groups, lowest first."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
