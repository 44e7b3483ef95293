"""The files of one checkpoint: written tensor by tensor, and read with every byte checked.

Saving needs memory for one tensor (none, if it lies in host memory already): each is hashed and
written as it passes. Written pages are forced out and dropped from the page cache file by file.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from fourge.checkpoint.disk import sync
from fourge.checkpoint.state import (
    Contents,
    FileEntry,
    StoredState,
    TensorEntry,
    TrainState,
    decode,
    digest_of,
    encode,
)
from fourge.core.errors import FormatError
from fourge.core.files import Buffer, ReadFile
from fourge.formats.safetensors_file import Record, read_safetensors, shards, write_safetensors
from fourge.formats.stored import KIND_OF, KINDS, Stored, bytes_of

# Written pages wait in memory until their file is complete: small files keep that small.
SHARD = 1 << 30
INDEX = "state.json"

Progress = Callable[[str], None]


def write_state(folder: Path, state: TrainState, progress: Progress | None = None) -> None:
    """Fill an empty folder with a state, and force it to the disk."""
    records = [
        Record(name, KIND_OF[tensor.dtype], tuple(tensor.shape))
        for name, tensor in state.tensors.items()
    ]
    files: dict[str, FileEntry] = {}
    tensors: dict[str, TensorEntry] = {}
    for number, run in enumerate(shards(records, SHARD), start=1):
        path = folder / f"tensors-{number:05d}.safetensors"
        write_safetensors(path, run, _hashed(path.name, run, state, tensors, progress))
        sync(path)
        files[path.name] = file_entry(path)
    write_index(folder, Contents(state.meta, files, tensors))


def write_index(folder: Path, contents: Contents) -> None:
    """The last file of a checkpoint, forced to the disk with the names of all."""
    (folder / INDEX).write_bytes(encode(contents))
    sync(folder / INDEX)
    sync(folder)


def file_entry(path: Path) -> FileEntry:
    """What the index says of a file that is complete."""
    file = ReadFile(path)
    header = _header(file)
    file.release()
    return FileEntry(file.nbytes, digest_of(header))


def _header(file: ReadFile) -> Buffer:
    """What lies before the tensors of a safetensors file."""
    length = int.from_bytes(file.read_at(0, 8), "little")
    return file.read_at(0, min(8 + length, file.nbytes))


def _hashed(
    file: str,
    run: list[Record],
    state: TrainState,
    tensors: dict[str, TensorEntry],
    progress: Progress | None,
) -> Iterator[Tensor]:
    """The tensors of one file, in host memory, each entered with its digest as it passes."""
    for record in run:
        value = state.tensors[record.name].detach().cpu().contiguous()
        digest = digest_of(bytes_of(value))
        tensors[record.name] = TensorEntry(file, record.kind, record.shape, digest)
        yield value
        if progress:
            progress(record.name)


class CheckedTensors(Mapping[str, Tensor]):
    """The tensors of a checkpoint, each read and checked when it is asked for, and not kept."""

    def __init__(self, path: Path, contents: Contents) -> None:
        self._entries = contents.tensors
        self._path = path
        self._stored = {name: _open(path / name, contents) for name in contents.files}

    def __getitem__(self, name: str) -> Tensor:
        entry = self._entries[name]
        if not entry.parts:
            return self._read(entry.file, name, entry.kind, entry.shape, entry.digest)
        value = torch.empty(entry.shape, dtype=KINDS[entry.kind])
        for part in entry.parts:
            shape = (part.rows, *entry.shape[1:])
            rows = slice(part.first, part.first + part.rows)
            value[rows] = self._read(part.file, name, entry.kind, shape, part.digest)
        return value

    def _read(self, file: str, name: str, kind: str, shape: tuple[int, ...], digest: str) -> Tensor:
        stored = self._stored[file][name]
        if (stored.kind, stored.shape) != (kind, shape):
            raise _damaged(self._path / file, f"{name} is not {kind} {shape} as {INDEX} says")
        value = stored.dense()
        if digest_of(bytes_of(value)) != digest:
            raise _damaged(self._path / file, f"the bytes of {name} do not match their digest")
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def open_state(path: Path) -> StoredState:
    """The state in a folder, of which nothing but the index and the headers is read yet.

    Raises:
        FormatError: a file is missing or has another size or header than was written.
    """
    contents = _contents(path)
    return StoredState(CheckedTensors(path, contents), contents.meta, contents.tensors)


def looks_whole(path: Path) -> bool:
    """Whether every file is there in its full size: what can be known without reading them."""
    try:
        files = _contents(path).files
        return all(ReadFile(path / name).nbytes == entry.nbytes for name, entry in files.items())
    except FormatError:
        return False


def _contents(path: Path) -> Contents:
    file = ReadFile(path / INDEX)
    return decode(path / INDEX, bytes(file.read_at(0, file.nbytes)))


def _open(path: Path, contents: Contents) -> dict[str, Stored]:
    """The tensors of one file, after its size and header were checked."""
    expected = contents.files[path.name]
    listed = {name for name, entry in contents.tensors.items() if path.name in entry.files}
    file = ReadFile(path)
    if file.nbytes != expected.nbytes:
        raise _damaged(path, f"it has {file.nbytes} bytes; {expected.nbytes} were written")
    if digest_of(_header(file)) != expected.header:
        raise _damaged(path, "its header does not match its digest")
    stored = read_safetensors(path)
    if stored.keys() != listed:
        raise _damaged(path, f"{INDEX} lists other tensors than it holds")
    return stored


def _damaged(path: Path, why: str) -> FormatError:
    return FormatError(f"{path} is damaged.", why=why, fix="restore it from a copy")
