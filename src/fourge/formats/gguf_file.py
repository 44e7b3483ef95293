"""GGUF files: metadata and tensors, read with every length checked.

    file := "GGUF" u32 version u64 tensors u64 pairs | pair* | info* | padding | data
    pair := string u32 type value          info := string u32 ndim u64 dim* u32 type u64 offset

Dimensions are stored fastest first, the reverse of torch's. K-quants are decoded by the ``gguf``
package. Its reader is not used: it maps the file and believes every count in it (an array said
to have 2**60 elements is walked element by element).

NVFP4 (type 40) comes in runs of 64 values, 36 bytes: 4 scale bytes, then 4 x 8 bytes of codes;
in a group of 16, byte j holds element j (low half) and element j + 8 (high half), which is not
the order of the other formats. The tensor scale is a tensor of its own, ``<name>.scale``.
"""

from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor

from fourge.core.cursor import Cursor
from fourge.core.errors import FormatError
from fourge.core.files import ReadFile
from fourge.formats.stored import NVFP4, Stored, Tensors, is_possible, scale_from, tensor_from
from fourge.nvfp4.blocks import BLOCK, pack, unpack
from fourge.nvfp4.matrix import Nvfp4Matrix

Metadata = dict[str, Any]
RUN = 64  # values per NVFP4 run
_RUN_BYTES = 36
_NUMBER_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
                 12: "d"}  # fmt: skip
_STRING, _ARRAY = 8, 9
_PLAIN = {"F32": "f32", "F16": "f16", "BF16": "bf16", "F64": "f64", "I8": "i8", "I16": "i16",
          "I32": "i32", "I64": "i64"}  # fmt: skip


def read_gguf(path: Path) -> tuple[Metadata, dict[str, Stored]]:
    """Metadata and tensors of a GGUF, under GGUF's own names.

    Raises:
        FormatError: it is not a GGUF, is cut short, or contradicts itself.
    """
    file = ReadFile(path)
    cursor = Cursor(file)
    if cursor.take(4) != b"GGUF":
        raise FormatError(f"{path} is not a GGUF file.", why="it does not begin with GGUF")
    version = cursor.uint(4)
    if version not in (2, 3):
        cursor.fail(f"GGUF version {version} is unknown")
    tensor_count, pair_count = cursor.uint(8), cursor.uint(8)
    metadata = _metadata(cursor, pair_count)
    infos = _infos(cursor, tensor_count)
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 0 < alignment <= 1 << 20:
        cursor.fail(f"data aligned to {alignment} bytes")
    base = -(-cursor.position // alignment) * alignment
    tensors = {
        name: _stored(cursor, file, name, kind, shape, base + offset)
        for name, (kind, shape, offset) in infos.items()
    }
    spans = [(infos[name][2], stored.nbytes, name) for name, stored in tensors.items()]
    _require_apart(cursor, spans, alignment)
    return metadata, _join_scales(tensors)


def _require_apart(cursor: Cursor, spans: list[tuple[int, int, str]], alignment: int) -> None:
    """A damaged offset would load another tensor's bytes, and nothing else would show it."""
    end = 0
    for offset, nbytes, name in sorted(spans):
        if offset < end or offset % alignment:
            cursor.fail(f"{name!r} lies at {offset}, inside another tensor or not aligned")
        end = offset + nbytes


def _metadata(cursor: Cursor, count: int) -> Metadata:
    metadata: Metadata = {}
    for _ in range(count):
        key = cursor.text(cursor.uint(8))
        if key in metadata:
            cursor.fail(f"{key!r} is there twice")
        metadata[key] = _value(cursor, cursor.uint(4), depth=0)
    return metadata


def _value(cursor: Cursor, code: int, depth: int) -> Any:
    if code == _STRING:
        return cursor.text(cursor.uint(8))
    if code == _ARRAY:
        return _array(cursor, cursor.uint(4), cursor.uint(8), depth)
    if code not in _NUMBER_CODES:
        cursor.fail(f"metadata type {code} is unknown")
    return cursor.unpack(_NUMBER_CODES[code])


def _array(cursor: Cursor, code: int, count: int, depth: int) -> Any:
    if depth > 4:
        cursor.fail("arrays nested too deep")
    if code in _NUMBER_CODES:
        dtype = np.dtype(_NUMBER_CODES[code]).newbyteorder("<")
        return np.frombuffer(cursor.take(count * dtype.itemsize), dtype=dtype).tolist()
    if count > cursor.left:
        cursor.fail(f"an array of {count} elements")
    return [_value(cursor, code, depth + 1) for _ in range(count)]


def _infos(cursor: Cursor, count: int) -> dict[str, tuple[str, tuple[int, ...], int]]:
    infos: dict[str, tuple[str, tuple[int, ...], int]] = {}
    for _ in range(count):
        name = cursor.text(cursor.uint(8))
        if name in infos:
            cursor.fail(f"{name!r} is there twice")
        dims = cursor.uint(4)
        if dims > 4:
            cursor.fail(f"{name!r} has {dims} dimensions")
        shape = tuple(cursor.uint(8) for _ in range(dims))[::-1]
        code, offset = cursor.uint(4), cursor.uint(8)
        try:
            kind = gguf.GGMLQuantizationType(code).name
        except ValueError:
            cursor.fail(f"{name!r} has type {code}, which is unknown")
        infos[name] = (kind, shape, offset)
    return infos


def _stored(
    cursor: Cursor, file: ReadFile, name: str, kind: str, shape: tuple[int, ...], start: int
) -> Stored:
    block, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    if not is_possible(shape) or (kind == "NVFP4" and len(shape) != 2):
        cursor.fail(f"{name!r} is {kind} of shape {shape}, which cannot be")
    count = prod(shape)
    if block > 1 and (not count or not shape or shape[-1] % block):
        cursor.fail(f"{name!r} is {shape}: rows that do not divide into blocks of {block}")
    nbytes = count // block * block_bytes
    if start + nbytes > file.nbytes:
        cursor.fail(f"{name!r} ends at byte {start + nbytes}; the file has {file.nbytes}")
    read = partial(_read, file, start, nbytes, kind, shape)
    if kind == "NVFP4":
        return Stored(shape, NVFP4, nbytes, read)
    return Stored(shape, _PLAIN.get(kind, kind.lower()), nbytes, read)


def _read(
    file: ReadFile, start: int, nbytes: int, kind: str, shape: tuple[int, ...]
) -> Tensor | Nvfp4Matrix:
    data = file.read_at(start, nbytes)
    if kind in _PLAIN:
        return tensor_from(data, _PLAIN[kind], shape)
    if kind == "NVFP4":
        return from_runs(tensor_from(data, "u8", (nbytes,)), shape)
    try:
        with np.errstate(all="ignore"):  # a scale that is not finite is for the caller to see
            values = gguf.quants.dequantize(
                np.frombuffer(data, np.uint8), gguf.GGMLQuantizationType[kind]
            )
    except NotImplementedError as error:
        raise FormatError(f"{file.path} has {kind} tensors, which cannot be decoded.") from error
    return torch.from_numpy(values).view(shape)


# --- NVFP4 -------------------------------------------------------------------------------------


def _join_scales(tensors: Tensors) -> dict[str, Stored]:
    """Apply each ``<name>.scale`` to the NVFP4 tensor it belongs to."""
    joined = dict(tensors)
    for name, stored in tensors.items():
        if stored.kind != NVFP4:
            continue
        scale_name = f"{name.removesuffix('.weight')}.scale"
        scale = joined.pop(scale_name, None)
        if scale is None:
            continue
        if prod(scale.shape) != 1:
            raise FormatError(f"{name}: its scale has shape {scale.shape}; one number is needed.")
        read = partial(_scaled, stored, scale, scale_name)
        joined[name] = Stored(stored.shape, NVFP4, stored.nbytes + 4, read)
    return joined


def _scaled(stored: Stored, scale: Stored, scale_name: str) -> Nvfp4Matrix:
    matrix = stored.matrix()
    value = scale_from(scale.dense(), scale_name)
    return Nvfp4Matrix(matrix.packed_RC, matrix.block_scale_RB, value)


def from_runs(raw: Tensor, shape: tuple[int, ...]) -> Nvfp4Matrix:
    """GGUF's runs as a matrix with a tensor scale of 1.

    Raises:
        FormatError: not a matrix, or a scale byte that stands for no number.
    """
    if len(shape) != 2:
        raise FormatError(f"An NVFP4 tensor of shape {shape} is not a matrix.")
    rows, cols = shape
    runs = raw.view(rows, cols // RUN, _RUN_BYTES)
    scale = runs[..., :4].reshape(rows, cols // BLOCK) & 0x7F
    scale = torch.where(scale == 0x7F, torch.zeros_like(scale), scale)  # as ggml reads it
    half = runs[..., 4:].reshape(rows, cols // BLOCK, BLOCK // 2)
    codes = torch.cat([half & 0xF, half >> 4], dim=-1).view(rows, cols)
    return Nvfp4Matrix(pack(codes), scale.view(torch.float8_e4m3fn), torch.ones(()))


def to_runs(matrix: Nvfp4Matrix) -> Tensor:
    """The matrix as rows of GGUF's runs; its tensor scale goes elsewhere.

    Raises:
        FormatError: the columns do not divide into runs of 64, or a scale is negative.
    """
    rows, cols = matrix.shape
    require_runs(cols)
    scale = matrix.block_scale_RB.view(torch.uint8)
    if (scale >= 0x7F).any():
        raise FormatError("A block scale is negative or not a number; GGUF has no place for it.")
    codes = unpack(matrix.packed_RC).view(rows, cols // BLOCK, BLOCK)
    half = codes[..., : BLOCK // 2] | (codes[..., BLOCK // 2 :] << 4)
    runs = torch.cat([scale.view(rows, -1, 4), half.reshape(rows, cols // RUN, 32)], dim=-1)
    return runs.reshape(rows, -1)


def require_runs(cols: int, name: str = "a weight") -> None:
    """Raise unless rows of this length can be stored as NVFP4 in a GGUF."""
    if cols % RUN:
        raise FormatError(
            f"GGUF stores NVFP4 in runs of {RUN}; {name} has {cols} columns.",
            fix="use --to compressed-tensors, or keep the layer in bf16 with --keep",
        )
