"""safetensors files, read and written one tensor at a time.

    file := u64 n | JSON header of n bytes | data
    header := {name: {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {...}}

The ``safetensors`` package maps a whole file for reading, which leaves it in the page cache,
and takes a whole dictionary for writing, which must fit in memory. The format is small enough
that neither is needed. Tests read what we write with that package, and the reverse.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

from torch import Tensor

from fourge.core.errors import FormatError
from fourge.core.files import ReadFile
from fourge.formats.stored import KINDS, Stored, bytes_of, is_possible, tensor_from

MAX_HEADER = 100_000_000  # bytes; the limit of the reference implementation

_KIND_OF_NAME = {
    "F64": "f64", "F32": "f32", "F16": "f16", "BF16": "bf16", "F8_E4M3": "e4m3",
    "F8_E5M2": "e5m2", "I64": "i64", "I32": "i32", "I16": "i16", "I8": "i8", "U8": "u8",
    "BOOL": "bool",
}  # fmt: skip
_NAME_OF_KIND = {kind: name for name, kind in _KIND_OF_NAME.items()}


@dataclass(frozen=True, slots=True)
class Record:
    """A tensor to be written: announced in the header before its data exists."""

    name: str
    kind: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * KINDS[self.kind].itemsize


def read_safetensors(path: Path) -> dict[str, Stored]:
    """The tensors of one file.

    Raises:
        FormatError: it is not a safetensors file, or is cut short, or contradicts itself.
    """
    file = ReadFile(path)
    length = int.from_bytes(file.read_at(0, 8), "little")
    if length > min(MAX_HEADER, file.nbytes - 8):
        raise _damaged(path, f"the header announces {length} bytes; the file has {file.nbytes}")
    header = _parse(path, bytes(file.read_at(8, length)))
    header.pop("__metadata__", None)
    base = 8 + length
    spans: list[tuple[int, int]] = []
    tensors = {}
    for name, entry in header.items():
        kind, shape, begin, end = _checked(path, name, entry)
        spans.append((begin, end))
        read = partial(_read, file, base + begin, end - begin, kind, shape)
        tensors[name] = Stored(shape, kind, end - begin, read)
    _require_tiling(path, spans, file.nbytes - base)
    return tensors


def write_safetensors(path: Path, records: list[Record], values: Iterable[Tensor]) -> None:
    """Write the announced tensors, in order, as ``values`` yields them."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for record in records:
        header[record.name] = {
            "dtype": _NAME_OF_KIND[record.kind],
            "shape": list(record.shape),
            "data_offsets": [position, position + record.nbytes],
        }
        position += record.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for record, value in zip(records, values, strict=True):
            if value.dtype != KINDS[record.kind] or tuple(value.shape) != record.shape:
                raise AssertionError(
                    f"{record.name}: announced {record.kind} {record.shape}, "
                    f"got {value.dtype} {tuple(value.shape)}"
                )
            file.write(bytes_of(value))


def _read(file: ReadFile, start: int, nbytes: int, kind: str, shape: tuple[int, ...]) -> Tensor:
    return tensor_from(file.read_at(start, nbytes), kind, shape)


def _parse(path: Path, text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text.decode(), object_pairs_hook=partial(_unique, path))
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"its header is not JSON ({error})") from error
    if not isinstance(header, dict):
        raise _damaged(path, "its header is not a JSON object")
    return header


def _unique(path: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _damaged(path, f"{name!r} is there twice")
        found[name] = value
    return found


def _checked(path: Path, name: str, entry: Any) -> tuple[str, tuple[int, ...], int, int]:
    try:
        name.encode()  # a lone surrogate could be neither printed nor written
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        kind = _KIND_OF_NAME.get(dtype)
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, f"the entry of {name!r} is incomplete: {error}") from error
    if kind is None:
        raise FormatError(f"{path}: {name!r} is stored as {dtype!r:.40}, which is unknown here.")
    numbers = [*shape, begin, end] if isinstance(shape, list) else [None]
    if not all(type(number) is int and 0 <= number < 1 << 63 for number in numbers):
        raise _damaged(path, f"the entry of {name!r} has a size that cannot be")
    shape = tuple(shape)
    if not is_possible(shape):
        raise _damaged(path, f"{name!r} has shape {shape[:20]}, which cannot be")
    if end - begin != prod(shape) * KINDS[kind].itemsize:
        raise _damaged(path, f"{name!r} is {shape} of {kind} in {end - begin} bytes")
    return kind, shape, begin, end


def _require_tiling(path: Path, spans: list[tuple[int, int]], nbytes: int) -> None:
    """Tensors must lie one after the other and fill the data: no gap, overlap or remainder."""
    expected = 0
    for begin, end in sorted(spans):
        if begin != expected:
            raise _damaged(path, f"data at byte {expected} is claimed twice or not at all")
        expected = end
    if expected != nbytes:
        raise _damaged(path, f"its tensors take {expected} bytes; it has {nbytes}")


def _damaged(path: Path, why: str) -> FormatError:
    return FormatError(
        f"{path} is cut short or damaged.", why=why, fix="fetch or export the file again"
    )


def shards(records: Iterable[Record], limit: int) -> Iterator[list[Record]]:
    """The records cut into runs of at most ``limit`` bytes (a larger tensor is alone)."""
    run: list[Record] = []
    nbytes = 0
    for record in records:
        if run and nbytes + record.nbytes > limit:
            yield run
            run, nbytes = [], 0
        run.append(record)
        nbytes += record.nbytes
    if run:
        yield run
