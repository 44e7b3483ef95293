"""Whatever can be talked to, evaluated or exported, opened as one kind of thing.

A model is opened by ``model.source``. A training checkpoint is the model that the run began with,
with the trained tensors in the place of its own: to a loader it is a source like any other, read
tensor by tensor. A run's folder stands for its latest checkpoint, also while the run goes on.

How the run computes (scheme, which layers stay dense, arguments of the chat template) is in the
checkpoint, and is what the model is to be used with.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from torch import Tensor

from fourge.checkpoint import store
from fourge.checkpoint.files import INDEX
from fourge.checkpoint.state import StoredState
from fourge.core.errors import FormatError
from fourge.formats.stored import KINDS, NVFP4, Stored
from fourge.model.build import untied
from fourge.model.source import Source, open_source
from fourge.model.swap import KEEP_BF16
from fourge.nvfp4.matrix import Nvfp4Matrix


@dataclass(frozen=True, slots=True)
class Opened:
    """A source, and what is known of how it is meant to be used."""

    source: Source
    checkpoint: Path | None = None
    scheme: str = "none"  # of the run; "none" for a model, which says it with its tensors
    keep: tuple[str, ...] = KEEP_BF16
    layers: tuple[str, ...] = ()  # NVFP4 in the model that the run began with; none: by scheme
    template_arguments: Mapping[str, Any] = field(default_factory=dict)


def open_any(reference: str | Path) -> Opened:
    """Open a model, a training checkpoint, or a run's folder.

    Raises:
        FormatError: nothing there, or nothing that can be read.
    """
    path = Path(reference)
    if (path / INDEX).is_file():
        return _open_checkpoint(path)
    if (latest := store.latest(path / store.CHECKPOINTS)) is not None:
        return _open_checkpoint(latest)
    return Opened(open_source(reference))


def _open_checkpoint(path: Path) -> Opened:
    state = store.open_checkpoint(path)
    try:
        config = yaml.safe_load(state.meta["config"])
        model, template = config["model"], config["data"].get("template") or {}
        base = untied(open_source(state.meta["model"]))
        scheme, keep = str(model["scheme"]), tuple(model["keep_bf16"])
    except (KeyError, TypeError, yaml.YAMLError) as error:
        raise FormatError(f"{path} is a checkpoint that does not say its run.") from error
    except FormatError as error:
        raise FormatError(
            f"{path} needs the model that its run began with.",
            why=error.problem,
            fix="put that model back where it was",
        ) from error
    layers = tuple(n.removesuffix(".weight") for n, s in base.tensors.items() if s.kind == NVFP4)
    tensors = {**base.tensors, **_trained(path, state)}
    source = replace(base, path=path, tensors=tensors, gguf_metadata=None)
    return Opened(source, path, scheme, keep, layers, template)


def _trained(path: Path, state: StoredState) -> dict[str, Stored]:
    """The tensors of a checkpoint under transformers' names, packed ones as NVFP4."""
    found: dict[str, Stored] = {}
    for key in state.tensors:
        kind, _, name = key.partition("/")
        if kind not in ("weight", "buffer") or name.endswith(("/block_scale", "/tensor_scale")):
            continue
        if name.endswith("/packed"):
            found[name.removesuffix("/packed")] = _packed(path, state, key.removesuffix("/packed"))
        else:
            found[name] = _dense(path, state, key)
    return found


def _dense(path: Path, state: StoredState, key: str) -> Stored:
    entry = state.entries[key]
    nbytes = prod(entry.shape) * KINDS[entry.kind].itemsize
    return Stored(entry.shape, entry.kind, nbytes, partial(_read, path, state, key))


def _packed(path: Path, state: StoredState, key: str) -> Stored:
    rows, half = state.entries[f"{key}/packed"].shape
    nbytes = Nvfp4Matrix.nbytes_for(rows, 2 * half)
    return Stored((rows, 2 * half), NVFP4, nbytes, partial(_read_matrix, path, state, key))


def _read(path: Path, state: StoredState, key: str) -> Tensor:
    with store.reading(path):
        return state.tensors[key]


def _read_matrix(path: Path, state: StoredState, key: str) -> Nvfp4Matrix:
    parts = ("packed", "block_scale", "tensor_scale")
    return Nvfp4Matrix(*(_read(path, state, f"{key}/{part}") for part in parts))
