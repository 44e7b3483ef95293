"""A transformers folder: config.json, safetensors in one file or in shards with an index."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from torch import Tensor

from fourge.core.errors import FormatError
from fourge.formats.safetensors_file import Record, read_safetensors, shards, write_safetensors
from fourge.formats.stored import Stored

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARD_BYTES = 4 << 30


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        FormatError: it is missing or is not one.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FormatError(
            f"{path} could not be read: {error.strerror}.",
            why="a model folder needs it",
            fix="complete the folder, or point at the one that has it",
        ) from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path} is not valid JSON.", why=str(error)) from error
    if not isinstance(value, dict):
        raise FormatError(f"{path} is not a JSON object.")
    return value


def write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_folder(folder: Path) -> dict[str, Stored]:
    """All tensors of a folder.

    Raises:
        FormatError: no weights, a shard is missing or damaged, or a name is there twice.
    """
    tensors: dict[str, Stored] = {}
    for path in _weight_files(folder):
        for name, stored in read_safetensors(path).items():
            if name in tensors:
                raise FormatError(f"{path} has {name!r}, which another shard has too.")
            tensors[name] = stored
    return tensors


def _weight_files(folder: Path) -> list[Path]:
    if (folder / INDEX).exists():
        weight_map = read_json(folder / INDEX).get("weight_map")
        names = list(weight_map.values()) if isinstance(weight_map, dict) else []
        if not names or not all(map(_is_shard, names)):
            raise FormatError(
                f"{folder / INDEX} does not name the files of this folder.",
                why="its weight_map gives the safetensors file, beside it, of each tensor",
                fix="fetch or export the folder again",
            )
        return [folder / name for name in sorted(set(names))]
    if (folder / SINGLE).exists():
        return [folder / SINGLE]
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt")):
        raise FormatError(
            f"{folder} has its weights in pickle files.",
            why="a pickle can run code when it is opened; safetensors cannot",
            fix="convert it with save_pretrained(..., safe_serialization=True)",
        )
    raise FormatError(
        f"{folder} has no weights.",
        why=f"neither {SINGLE} nor {INDEX} is there",
        fix="point at a folder with safetensors, a .gguf or a .dat",
    )


def _is_shard(name: Any) -> bool:
    """Whether this can only be a safetensors file in the same folder."""
    return (
        isinstance(name, str)
        and Path(name).name == name
        and name.endswith(".safetensors")
        and name.isprintable()
    )


def write_folder(
    folder: Path, records: list[Record], values: Iterator[Tensor], *, shard_bytes: int = SHARD_BYTES
) -> None:
    """Write the announced tensors, in shards with an index if one file would be too large."""
    runs = list(shards(records, shard_bytes))
    if len(runs) <= 1:
        write_safetensors(folder / SINGLE, records, values)
        return
    names = [f"model-{i:05d}-of-{len(runs):05d}.safetensors" for i in range(1, len(runs) + 1)]
    for name, run in zip(names, runs, strict=True):
        write_safetensors(folder / name, run, islice(values, len(run)))
    weight_map = {r.name: name for name, run in zip(names, runs, strict=True) for r in run}
    total = sum(record.nbytes for record in records)
    write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": weight_map})
