"""Where a model comes from: opened as a config, a mapping of named tensors, and a tokenizer.

| given                    | layout found in it                                                  |
|--------------------------|---------------------------------------------------------------------|
| a transformers folder    | dense, compressed-tensors NVFP4 or ModelOpt NVFP4 safetensors        |
| ``owner/name``           | the same, fetched from the hub (the only use of the network)         |
| a ``.gguf``              | any quantisation that the ``gguf`` package decodes, and NVFP4        |
| a ``.dat`` (TorchSharp)  | dense, NVFP4 pairs or NF4; config.json and tokenizer in its folder   |
| ``smollm2-135m``         | the embedded model                                                  |

Opening reads headers only. Tensor names are transformers'.
"""

import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from fourge.core.errors import FormatError, first_line
from fourge.core.files import Stamp, stamp_of
from fourge.formats import layout
from fourge.formats.folder import read_folder, read_json
from fourge.formats.gguf_file import Metadata, read_gguf
from fourge.formats.gguf_names import ARCHITECTURES, require_architecture, to_transformers
from fourge.formats.safetensors_file import read_safetensors
from fourge.formats.stored import Tensors
from fourge.formats.torchsharp_dat import read_dat
from fourge.model.embedded import EMBEDDED, embedded_path
from fourge.model.tokenizer import (
    copy_tokenizer,
    folder_tokenizer,
    gguf_tokenizer,
    require_tokenizer,
    write_gguf_tokenizer,
)

_HUB_FILES = ["*.json", "*.jinja", "*.txt", "tokenizer.model", "*.safetensors"]


@dataclass(frozen=True, slots=True)
class Source:
    """A model that can be read. ``config`` is transformers' own object."""

    path: Path
    layout: str  # "dense", "compressed-tensors", "modelopt", "gguf" or "dat"
    config: Any
    tensors: Tensors
    tokenizer: Callable[[], Any]  # transformers' own object
    write_tokenizer: Callable[[Path], None]  # into a folder: tokenizer, template, generation
    gguf_metadata: Metadata | None = None


def open_source(model: str | Path) -> Source:
    """Open a model by path, hub id or the embedded model's name.

    Raises:
        FormatError: nothing there, or something that cannot be read as a model.
    """
    if str(model) == EMBEDDED:
        return _open_gguf(embedded_path())
    path = Path(model)
    if path.is_dir():
        dat = _only_dat(path)
        return _open_dat(dat) if dat else _open_folder(path)
    if path.is_file() and path.suffix == ".gguf":
        return _open_gguf(path)
    if path.is_file() and path.suffix == ".dat":
        return _open_dat(path)
    if path.exists():
        raise FormatError(
            f"{path} is not a model.", fix="give a folder, a .gguf, a .dat or a hub id"
        )
    if re.fullmatch(r"[\w.-]+/[\w.-]+", str(model)) and not path.parent.is_dir():
        return _open_folder(_from_hub(str(model)))
    near = get_close_matches(str(model).lower(), [EMBEDDED], cutoff=0.7)
    raise FormatError(
        f"{path} does not exist.",
        why=f"did you mean {EMBEDDED}?" if near else "",
        fix=f"give a folder, a .gguf, a .dat, a hub id (owner/name) or {EMBEDDED}",
    )


def open_tensors(model: str | Path) -> tuple[str, Tensors]:
    """Layout and tensors alone, of a model or of a file that lacks config and tokenizer.

    Raises:
        FormatError: nothing there, or nothing that holds tensors.
    """
    path = embedded_path() if str(model) == EMBEDDED else Path(model)
    if path.suffix == ".safetensors" and path.is_file():
        return _folder_layout(read_safetensors(path))
    if path.suffix == ".dat" and path.is_file():
        return "dat", read_dat(path)
    if path.suffix == ".gguf" and path.is_file():
        metadata, raw = read_gguf(path)
        if metadata.get("general.architecture") not in ARCHITECTURES:
            return "gguf", raw  # listed under GGUF's own names
        return "gguf", to_transformers(raw, *_architecture(path, metadata))
    if path.is_dir() and _only_dat(path) is None:
        return _folder_layout(read_folder(path))
    source = open_source(model)
    return source.layout, source.tensors


def _folder_layout(tensors: Tensors) -> tuple[str, Tensors]:
    found = layout.detect(tensors)
    return (found.name, layout.join(tensors, found)) if found else ("dense", tensors)


def _only_dat(folder: Path) -> Path | None:
    """The ``.dat`` of a folder that has one and no safetensors."""
    files = list(folder.glob("*.dat"))
    return files[0] if len(files) == 1 and not any(folder.glob("*.safetensors")) else None


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=_HUB_FILES))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        raise FormatError(
            f"{name} could not be fetched from the hub.",
            why=first_line(error),
            fix="check the name and the network, or give a local path",
        ) from error


def _open_folder(path: Path) -> Source:
    config = _config(path)
    kind, tensors = _folder_layout(read_folder(path))
    require_tokenizer(path)
    read, write = partial(folder_tokenizer, path), partial(copy_tokenizer, path)
    return Source(path, kind, config, tensors, read, write)


def _open_dat(path: Path) -> Source:
    config = _config(path.parent)
    require_tokenizer(path.parent)
    folder = path.parent
    read, write = partial(folder_tokenizer, folder), partial(copy_tokenizer, folder)
    return Source(path, "dat", config, read_dat(path), read, write)


def _open_gguf(path: Path) -> Source:
    metadata, raw = read_gguf(path)
    architecture = _architecture(path, metadata)
    config = _gguf_config(path, metadata, architecture[0], raw)
    tensors = to_transformers(raw, *architecture)
    pre_tokenizer = str(metadata.get("tokenizer.ggml.pre"))
    read = partial(gguf_tokenizer, path, pre_tokenizer)
    write = partial(write_gguf_tokenizer, path, pre_tokenizer)
    return Source(path, "gguf", config, tensors, read, write, metadata)


def _architecture(path: Path, metadata: Metadata) -> tuple[str, int, int]:
    """Name, attention heads and key-value heads."""
    name = metadata.get("general.architecture")
    if not isinstance(name, str):
        raise FormatError(f"{path} does not say its architecture.")
    require_architecture(name)
    heads = metadata.get(f"{name}.attention.head_count")
    kv_heads = metadata.get(f"{name}.attention.head_count_kv", heads)
    if not isinstance(heads, int) or not isinstance(kv_heads, int) or min(heads, kv_heads) < 1:
        raise FormatError(f"{path} does not say how many attention heads it has.")
    return name, heads, kv_heads


def _gguf_config(path: Path, metadata: Metadata, architecture: str, raw: Tensors) -> Any:
    try:
        config = deepcopy(_transformers_config(path, stamp_of(path)))
    except Exception as error:  # transformers raises whatever its parsing met
        raise FormatError(
            f"{path} has metadata that is not a model's.", why=first_line(error)
        ) from error
    head_dim = metadata.get(f"{architecture}.attention.key_length")
    if isinstance(head_dim, int):  # transformers leaves it at the family's default
        config.head_dim = head_dim
    if metadata.get(f"{architecture}.rope.scaling.type", "none") != "none":
        raise FormatError(
            f"{path} scales its rotary embedding.",
            why="transformers does not take that over from a GGUF, and long texts come out wrong",
            fix="use the model's transformers folder",
        )
    if hasattr(config, "attention_bias"):
        config.attention_bias = any(name.endswith("attn_q.bias") for name in raw)
    config.tie_word_embeddings = "output.weight" not in raw
    return config


@lru_cache(maxsize=4)  # transformers takes seconds to read a vocabulary
def _transformers_config(path: Path, stamp: Stamp) -> Any:
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(path.parent, gguf_file=path.name)


def _config(folder: Path) -> Any:
    from transformers import AutoConfig

    content = read_json(folder / "config.json")
    content.pop("quantization_config", None)  # the tensors say what they are
    model_type = content.pop("model_type", None)
    try:
        return AutoConfig.for_model(model_type, **content)
    except Exception as error:  # transformers raises whatever its validation met
        raise FormatError(
            f"{folder / 'config.json'} is not a config that transformers knows.",
            why=first_line(error),
        ) from error
