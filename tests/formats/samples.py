"""Small sound files of each format, built byte by byte so that a test can damage one thing.

Nothing here is built by our writers: what they get wrong, these files do not.
"""

import json
import random
import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fourge.formats import layout
from fourge.formats.gguf_file import read_gguf
from fourge.formats.gguf_names import to_transformers
from fourge.formats.safetensors_file import read_safetensors
from fourge.formats.stored import Tensors
from fourge.formats.torchsharp_dat import read_dat

ROWS, COLS = 4, 64  # of each NVFP4 weight: the least that GGUF can hold
SUFFIX = {
    "compressed-tensors": ".safetensors",
    "modelopt": ".safetensors",
    "gguf": ".gguf",
    "dat": ".dat",
}
KINDS = tuple(SUFFIX)
ALIGNMENT = 32  # of tensor data in a GGUF


@dataclass(frozen=True)
class Piece:
    """A tensor as it lies in a file; ``kind`` is the format's own name or number for its type."""

    kind: Any
    shape: tuple[int, ...]
    data: bytes


@cache
def noise(count: int, top: int = 256) -> bytes:
    """The same bytes at every call, all below ``top``."""
    return bytes(random.Random(count).randrange(top) for _ in range(count))


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


CODES = noise(ROWS * COLS // 2)
BLOCK_SCALES = noise(ROWS * COLS // 16, top=0x7F)  # E4M3 that are numbers and not negative


# --- safetensors -------------------------------------------------------------------------------


def safetensors(pieces: dict[str, Piece]) -> bytes:
    """A file with these tensors, one after the other."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, piece in pieces.items():
        begin, end = end, end + len(piece.data)
        header[name] = entry(piece.kind, piece.shape, begin, end)
    return with_header(json.dumps(header), b"".join(p.data for p in pieces.values()))


def entry(dtype: str, shape: tuple[int, ...], begin: int, end: int) -> dict[str, Any]:
    """What a header says of one tensor."""
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def with_header(header: str | dict[str, Any], data: bytes = b"") -> bytes:
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    return len(text).to_bytes(8, "little") + text + data


def compressed_tensors() -> dict[str, Piece]:
    return {
        "a.weight_packed": Piece("U8", (ROWS, COLS // 2), CODES),
        "a.weight_scale": Piece("F8_E4M3", (ROWS, COLS // 16), BLOCK_SCALES),
        "a.weight_global_scale": Piece("F32", (1,), floats(4.0)),
        "a.input_global_scale": Piece("F32", (1,), floats(2.0)),
        "norm.weight": Piece("BF16", (8,), noise(16)),
    }


def modelopt() -> dict[str, Piece]:
    return {
        "a.weight": Piece("U8", (ROWS, COLS // 2), CODES),
        "a.weight_scale": Piece("F8_E4M3", (ROWS, COLS // 16), BLOCK_SCALES),
        "a.weight_scale_2": Piece("F32", (), floats(0.25)),
        "a.input_scale": Piece("F32", (), floats(0.5)),
        "norm.weight": Piece("F16", (8,), noise(16)),
        "steps": Piece("I64", (2,), noise(16)),
    }


# --- GGUF --------------------------------------------------------------------------------------

F32, Q8_0, NVFP4 = 0, 8, 40  # tensor types
U32, FLOAT, STRING, ARRAY = 4, 6, 8, 9  # metadata types


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def pair(key: str, code: int, value: bytes) -> bytes:
    """One entry of the metadata."""
    return text(key) + struct.pack("<I", code) + value


def array(code: int, values: list[bytes]) -> bytes:
    return struct.pack("<IQ", code, len(values)) + b"".join(values)


def info(name: str, piece: Piece, offset: int) -> bytes:
    """What the header says of one tensor; its dimensions are the reverse of ``shape``."""
    dims = piece.shape[::-1]
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, piece.kind, offset)


def gguf_file(pairs: list[bytes], pieces: list[tuple[str, Piece]]) -> bytes:
    infos, data = b"", b""
    for name, piece in pieces:
        infos += info(name, piece, len(data))
        data += piece.data + bytes(-len(piece.data) % ALIGNMENT)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(pieces), len(pairs)) + b"".join(pairs) + infos
    return head + bytes(-len(head) % ALIGNMENT) + data


def gguf_pairs() -> list[bytes]:
    return [
        pair("general.architecture", STRING, text("llama")),
        pair("general.alignment", U32, struct.pack("<I", ALIGNMENT)),
        pair("llama.rope.freq_base", FLOAT, floats(10_000.0)),
        pair("tokenizer.ggml.tokens", ARRAY, array(STRING, [text(t) for t in ("a", "b", "cd")])),
        pair("tokenizer.ggml.scores", ARRAY, array(FLOAT, [floats(x) for x in (0.0, -1.0, 1.5)])),
    ]


def gguf_pieces() -> dict[str, Piece]:
    return {
        "blk.0.attn_norm.weight": Piece(F32, (8,), floats(*range(8))),
        "token_embd.weight": Piece(Q8_0, (2, 32), noise(2 * 34)),
        "blk.0.attn_q.weight": Piece(NVFP4, (ROWS, COLS), noise(ROWS * COLS // 64 * 36)),
        "blk.0.attn_q.scale": Piece(F32, (1,), floats(0.25)),
        "blk.0.ffn_up.weight": Piece(NVFP4, (ROWS, COLS), noise(ROWS * COLS // 64 * 36)),
    }


# --- TorchSharp --------------------------------------------------------------------------------

BYTE, HALF, FLOAT32, COMPLEX64, CODE_PAIR, E4M3 = 0, 5, 6, 9, 100, 101  # element types


def leb(value: int) -> bytes:
    """A number in 7-bit groups, lowest first."""
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + leb(rest) if rest else bytes([low])


def dat_entry(name: str, piece: Piece) -> bytes:
    raw = name.encode()
    numbers = (piece.kind, len(piece.shape), *piece.shape)
    return leb(len(raw)) + raw + b"".join(map(leb, numbers)) + piece.data


def dat_file(pieces: list[tuple[str, Piece]]) -> bytes:
    return leb(len(pieces)) + b"".join(dat_entry(name, piece) for name, piece in pieces)


def dat_pieces() -> dict[str, Piece]:
    """Dense tensors, NVFP4 with and without a tensor scale, and NF4."""
    return {
        "norm.weight": Piece(HALF, (8,), noise(16)),
        "b.bias": Piece(FLOAT32, (4,), floats(1.0, -2.0, 0.5, 0.0)),
        "a.weight.qdata": Piece(CODE_PAIR, (ROWS, COLS // 2), CODES),
        "a.weight.scale": Piece(E4M3, (ROWS, COLS // 16), BLOCK_SCALES),
        "a.weight.scale_2": Piece(FLOAT32, (), floats(0.25)),
        "b.qdata": Piece(CODE_PAIR, (ROWS, COLS // 2), CODES),
        "b.scale": Piece(E4M3, (ROWS, COLS // 16), BLOCK_SCALES),
        "c.weight": Piece(BYTE, (64, 1), noise(64)),
        "c.absmax": Piece(FLOAT32, (2,), floats(0.5, 2.0)),
        "c.quant_map": Piece(FLOAT32, (16,), floats(*(i / 8 - 1 for i in range(16)))),
    }


# --- all of them -------------------------------------------------------------------------------


def pieces_of(kind: str) -> dict[str, Piece]:
    """The tensors of a sound file of this kind."""
    return {
        "compressed-tensors": compressed_tensors,
        "modelopt": modelopt,
        "gguf": gguf_pieces,
        "dat": dat_pieces,
    }[kind]()


def build(kind: str, pieces: dict[str, Piece]) -> bytes:
    """A file of this kind with these tensors."""
    if kind == "gguf":
        return gguf_file(gguf_pairs(), list(pieces.items()))
    return dat_file(list(pieces.items())) if kind == "dat" else safetensors(pieces)


def read_everything(path: Path) -> None:
    """Open a file, and read every tensor in it."""
    tensors = opened(path)
    _read_all(tensors)
    if path.suffix == ".gguf":
        _read_all(to_transformers(tensors, "llama", 2, 1))


def opened(path: Path) -> Tensors:
    """The tensors of a file, in the format that its suffix says."""
    if path.suffix == ".gguf":
        return read_gguf(path)[1]
    if path.suffix == ".dat":
        return read_dat(path)
    tensors = read_safetensors(path)
    found = layout.detect(tensors)
    return layout.join(tensors, found) if found else tensors


def _read_all(tensors: Tensors) -> None:
    for name, stored in tensors.items():
        shape = tuple(stored.read().shape)
        assert shape == stored.shape, f"{name} is said to be {stored.shape} and is {shape}"
