"""What a run needs to continue where it stopped, and the table of contents of its files.

A checkpoint is safetensors files and one ``state.json``:

    {"digest": "<of every byte after this line>",
    "format": 1,
    "meta": {"step": 123, ...},
    "files": {"tensors-00001.safetensors": {"nbytes": ..., "header": "<digest>"}, ...},
    "tensors": {"model.norm.weight": {"file", "kind", "shape", "digest"}, ...}}

Digests are blake2b of 128 bits. Those of the tensors cover the data of a file, that of its
header what lies before them, and the first line of ``state.json`` the rest of it: there is no
byte in a checkpoint that can change without being found.

Where several processes wrote it, a tensor has ``"parts"`` in the place of ``"file"`` and
``"digest"``: rows of it in several files, each with the number of its first row. Such an index is
of format 2; its files are those that ``torch.distributed.checkpoint`` writes as safetensors.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from fourge.core.errors import FormatError
from fourge.core.files import Buffer
from fourge.formats.stored import KIND_OF

FORMAT, IN_PARTS = 1, 2
KINDS = ("f64", "f32", "f16", "bf16", "e4m3", "e5m2", "i64", "i32", "i16", "i8", "u8", "bool")


@dataclass(frozen=True, slots=True, eq=False)
class TrainState:
    """``meta`` is plain JSON and has the number of steps taken under ``"step"``."""

    tensors: dict[str, Tensor]
    meta: dict[str, Any]

    def __post_init__(self) -> None:
        step = self.meta.get("step")
        if type(step) is not int or step < 0:
            raise ValueError(f"meta['step'] is {step!r}; it must be a number of steps")
        if json.loads(json.dumps(self.meta)) != self.meta:
            raise ValueError("meta does not come back from JSON as it is (a tuple, a key, a nan)")
        for name, tensor in self.tensors.items():
            if name == "__metadata__" or KIND_OF.get(tensor.dtype) not in KINDS:
                raise ValueError(f"{name!r} of {tensor.dtype} cannot be stored")

    @property
    def step(self) -> int:
        return int(self.meta["step"])


@dataclass(frozen=True, slots=True)
class PartEntry:
    """Some rows of a tensor: which file has them, from which row on, how many, their digest."""

    file: str
    first: int
    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where a tensor is, what it is, and the digest of its bytes."""

    file: str  # none, of one in parts
    kind: str
    shape: tuple[int, ...]
    digest: str
    parts: tuple[PartEntry, ...] = ()  # in the order of their rows

    def __post_init__(self) -> None:
        ends = [0, *(part.first + part.rows for part in self.parts)]
        if self.parts and ends != [*(part.first for part in self.parts), self.shape[0]]:
            raise ValueError("parts that do not make a whole")

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(part.file for part in self.parts) or (self.file,)


@dataclass(frozen=True, slots=True, eq=False)
class StoredState:
    """A state on disk: ``tensors`` are read, and checked, one by one as they are asked for."""

    tensors: Mapping[str, Tensor]
    meta: dict[str, Any]
    entries: Mapping[str, TensorEntry]  # what each tensor is, known without reading it

    @property
    def step(self) -> int:
        return int(self.meta["step"])


@dataclass(frozen=True, slots=True)
class FileEntry:
    """The size of a file, and the digest of what lies before its tensors."""

    nbytes: int
    header: str


@dataclass(frozen=True, slots=True)
class Contents:
    """What ``state.json`` says."""

    meta: dict[str, Any]
    files: dict[str, FileEntry]
    tensors: dict[str, TensorEntry]


def digest_of(data: bytes | memoryview | Buffer) -> str:
    """128 bits that change with any byte of the data."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def encode(contents: Contents) -> bytes:
    """The bytes of ``state.json``."""
    in_parts = any(entry.parts for entry in contents.tensors.values())
    tree = {"format": IN_PARTS if in_parts else FORMAT, **asdict(contents)}
    for entry in tree["tensors"].values():
        if not entry["parts"]:
            del entry["parts"]
    body = ",\n".join(f'"{name}": {json.dumps(value)}' for name, value in tree.items())
    rest = f"{body}}}\n".encode()
    return _first_line(rest) + rest


def decode(path: Path, data: bytes) -> Contents:
    """The contents that ``encode`` wrote.

    Raises:
        FormatError: a byte has changed, or another version of this format wrote it.
    """
    line, newline, rest = data.partition(b"\n")
    if line + newline != _first_line(rest):
        raise FormatError(f"{path} is damaged.", why="its bytes do not match their digest")
    try:
        return _parse(path, json.loads(data))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{path} is not the index of a checkpoint.") from error


def _parse(path: Path, tree: dict[str, Any]) -> Contents:
    if tree["format"] not in (FORMAT, IN_PARTS):
        raise FormatError(
            f"{path} is of format {tree['format']}; this version reads {FORMAT} and {IN_PARTS}.",
            fix="continue with the version of fourge that wrote it",
        )
    files = {name: FileEntry(**entry) for name, entry in tree["files"].items()}
    tensors = {name: _entry(entry) for name, entry in tree["tensors"].items()}
    if any(Path(name).name != name for name in files):
        raise ValueError("a file outside of the folder")
    if any(file not in files for entry in tensors.values() for file in entry.files):
        raise ValueError("a tensor in no file")
    return Contents(tree["meta"], files, tensors)


def _entry(tree: dict[str, Any]) -> TensorEntry:
    parts = tuple(PartEntry(**part) for part in tree.get("parts", ()))
    return TensorEntry(**{**tree, "shape": tuple(tree["shape"]), "parts": parts})


def _first_line(rest: bytes) -> bytes:
    return f'{{"digest": "{digest_of(rest)}",\n'.encode()
