"""Checkpoints that every rank writes its part of, and that any number of ranks can read.

The tensors are ``DTensor``s over the live memory: rows of weights, residuals and moments, all with
the parameter's own rows, so that one cut fits all. ``torch.distributed.checkpoint`` writes them as
safetensors, one set of files a rank, and reads any rows back from any cut. What it leaves is not
yet a checkpoint: the first rank gathers everybody's digests into the index, and then renames the
folder, as for a run of one process. A rank that dies before that leaves the last good checkpoint.

The files of a rank are filled to about ``FILE``: torch's writer holds one in memory.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor, Shard

from fourge.checkpoint import store
from fourge.checkpoint.files import file_entry, write_index
from fourge.checkpoint.state import (
    Contents,
    FileEntry,
    PartEntry,
    StoredState,
    TensorEntry,
    digest_of,
)
from fourge.core.crew import Crew
from fourge.core.errors import FormatError, OutputError, first_line
from fourge.formats.safetensors_file import read_safetensors
from fourge.formats.stored import KIND_OF, bytes_of
from fourge.model.build import saved_buffers
from fourge.optim.adamw import AdamW
from fourge.shard.agreement import together
from fourge.shard.part import is_copied, local_of, rows_of
from fourge.shard.ranks import Ranks, ranks_of

FILE = 256 << 20  # bytes


def save_together(
    crew: Crew, folder: Path, model: Any, optimizer: AdamW, meta: dict[str, Any], keep: int
) -> Path:
    """Write a checkpoint, with every rank's part, and remove all but the last ``keep``.

    Raises:
        OutputError: it cannot be written; the one before stays.
    """
    ranks, tensors, step = ranks_of(crew), captured(model, optimizer), int(meta["step"])
    numbers = {
        name: {k: v for k, v in optimizer.state_of(param).items() if not isinstance(v, Tensor)}
        for name, param, _ in optimizer.named()
    }
    with ExitStack() as first:
        placed = store.placed(folder, step)
        made = together(ranks, lambda: first.enter_context(placed) if ranks.is_first else None)
        temporary = Path(ranks.of_first(str(made)))
        with _checkpoint_errors(temporary):
            save(tensors, storage_writer=_writer(temporary, tensors))
        written = ranks.everyones(_entries(temporary, tensors, ranks))

        def commit() -> None:
            if ranks.is_first:
                whole = {**meta, "optim": numbers, "ranks": ranks.size}
                write_index(temporary, _contents(whole, written, tensors))
                first.close()
                store.prune(folder, keep)

        together(ranks, commit)
    return folder / store.name_of(step)


def load_together(crew: Crew, path: Path, state: StoredState, model: Any, opt: AdamW) -> None:
    """Fill a sharded model and its optimizer from a checkpoint that any number of ranks wrote.

    Every byte is checked against its digest, each tensor by one rank, and then read by those that
    have rows of it.

    Raises:
        FormatError: the checkpoint is damaged, or not of this model and these settings.
    """
    ranks, tensors = ranks_of(crew), captured(model, opt)
    together(ranks, lambda: _check(ranks, path, state, tensors, opt))
    with _checkpoint_errors(path):
        load(tensors, storage_reader=HuggingFaceStorageReader(str(path)))
    for name, param, _ in opt.named():
        opt.state_of(param).update(state.meta["optim"][name])


def captured(model: Any, optimizer: AdamW) -> dict[str, Tensor]:
    """Everything that a run needs to go on: the live tensors, as parts of whole ones."""
    tensors = {f"buffer/{name}": each for name, each in saved_buffers(model).items()}
    for name, param, _ in optimizer.named():
        tensors[f"weight/{name}"] = _part(param, local_of(param).detach())
        for key, value in optimizer.state_of(param).items():
            if isinstance(value, Tensor):
                tensors[f"optim/{name}/{key}"] = _part(param, value)
    return tensors


def _part(param: Tensor, here: Tensor) -> Tensor:
    """A tensor that has the rows of a parameter, cut as the parameter is."""
    if is_copied(param):
        return here
    rows = local_of(param).shape[0]
    columns = here.numel() // rows
    assert isinstance(param, DTensor), "sharded by FSDP2"
    return DTensor.from_local(
        here.view(rows, columns), param.device_mesh, [Shard(0)], run_check=False,
        shape=torch.Size((param.shape[0], columns)), stride=(columns, 1),
    )  # fmt: skip


def _writer(folder: Path, tensors: dict[str, Tensor]) -> HuggingFaceStorageWriter:
    """A writer that puts the tensors, in order, into files of about ``FILE``."""
    numbers, filled = dict[str, int](), 0
    for name, tensor in tensors.items():
        here = local_of(tensor) if isinstance(tensor, DTensor) else tensor
        filled += here.nbytes
        numbers[name] = 1 + filled // FILE
    return HuggingFaceStorageWriter(
        str(folder), fqn_to_index_mapping=numbers, save_distributed=True
    )


Written = tuple[dict[str, FileEntry], dict[str, PartEntry]]


def _entries(folder: Path, tensors: dict[str, Tensor], ranks: Ranks) -> Written:
    """What this rank wrote, read again: its files, and of each tensor the rows in them."""
    files: dict[str, FileEntry] = {}
    parts: dict[str, PartEntry] = {}
    for path in sorted(folder.glob(f"shard-{ranks.rank + 1:05d}-*.safetensors")):
        files[path.name] = file_entry(path)
        for name, stored in read_safetensors(path).items():
            tensor, rows = tensors[name], stored.shape[0] if stored.shape else 1
            is_part = isinstance(tensor, DTensor)
            first = rows_of(tensor.shape[0], ranks.rank, ranks.size).start if is_part else 0
            digest = digest_of(bytes_of(stored.dense()))
            parts[name] = PartEntry(path.name, first, rows, digest)
    return files, parts


def _contents(meta: dict[str, Any], written: list[Written], tensors: dict[str, Tensor]) -> Contents:
    files = {name: entry for each, _ in written for name, entry in each.items()}
    entries: dict[str, TensorEntry] = {}
    for name, tensor in tensors.items():
        parts = tuple(parts[name] for _, parts in written if name in parts)
        shape, kind = tuple(tensor.shape), KIND_OF[tensor.dtype]
        if isinstance(tensor, DTensor):
            entries[name] = TensorEntry("", kind, shape, "", parts)
        else:  # a copy of each rank; torch wrote one
            entries[name] = TensorEntry(parts[0].file, kind, shape, parts[0].digest)
    return Contents(meta, files, entries)


def _check(
    ranks: Ranks, path: Path, state: StoredState, tensors: dict[str, Tensor], optimizer: AdamW
) -> None:
    """This rank's share of the tensors: there, of the right form, and undamaged."""
    named = {name for name, _, _ in optimizer.named()}
    found = {name: (entry.kind, entry.shape) for name, entry in state.entries.items()}
    wanted = {name: (KIND_OF[t.dtype], tuple(t.shape)) for name, t in tensors.items()}
    if named != state.meta["optim"].keys() or found != wanted:
        other = sorted(k for k in {**found, **wanted} if found.get(k) != wanted.get(k))
        raise FormatError(
            "The checkpoint is not of this run.",
            why=f"other names, or another form of {', '.join(other[:3])}",
            fix="resume with the run file that made it",
        )
    with store.reading(path):
        for name in sorted(state.entries)[ranks.rank :: ranks.size]:
            state.tensors[name]


@contextmanager
def _checkpoint_errors(path: Path) -> Iterator[None]:
    """Torch's one error for whatever went wrong on any rank, in the user's terms."""
    try:
        yield
    except CheckpointException as error:
        rank, (cause, _) = next(iter(error.failures.items()))
        raise OutputError(
            f"{path} could not be written or read by rank {rank}.",
            why=first_line(cause) if isinstance(cause, Exception) else str(cause),
            fix="make room on the disk, or see that every rank has it",
        ) from error
