"""Write a model in any of the formats it is served from.

| target               | what is written                                                         |
|----------------------|-------------------------------------------------------------------------|
| `compressed-tensors` | a folder for transformers and vLLM, `nvfp4-pack-quantized`              |
| `modelopt`           | a folder in NVIDIA ModelOpt's layout, for TensorRT-LLM, vLLM, SGLang    |
| `gguf`               | one file for llama.cpp                                                  |
| `dat`                | a folder with `model.dat` as the F#/TorchSharp system reads it: a       |
|                      | single level of scale, for which dense weights are rounded              |
| `dat2`               | the same with one more entry, the tensor scale: nothing is rounded      |
| `dat-dense`          | a folder with a plain TorchSharp state dict                             |
| `safetensors`        | a plain folder, decoded, bf16                                           |

Tensors stream through one at a time; what is written appears under its name only when whole.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import torch

from fourge import __version__
from fourge.core.errors import ConfigError, OutputError
from fourge.core.files import refuse_existing, whole_file, whole_folder
from fourge.core.units import size
from fourge.formats.folder import SHARD_BYTES, read_json, write_folder, write_json
from fourge.formats.gguf_names import from_transformers
from fourge.formats.gguf_write import write_gguf
from fourge.formats.layout import COMPRESSED_TENSORS, MODELOPT, Layout, announced, parts
from fourge.formats.stored import KINDS, NVFP4, Stored, Tensors
from fourge.formats.torchsharp_dat import write_dat
from fourge.model import quant_config
from fourge.model.build import LM_HEAD, empty_model, matched, untied, untied_config
from fourge.model.gguf_metadata import gguf_architecture, metadata_of
from fourge.model.source import Source
from fourge.model.swap import KEEP_BF16, is_kept
from fourge.model.tensors import (
    checked,
    dense_tensors,
    linear_names,
    live_tensors,
    quantized_source,
    reporting,
    to_quantize,
    with_dense_in,
)
from fourge.nvfp4.gemm import Scheme
from fourge.nvfp4.matrix import Nvfp4Matrix
from fourge.nvfp4.recipe import FOURGE, Recipe

FOLDER_LAYOUTS = {"compressed-tensors": COMPRESSED_TENSORS, "modelopt": MODELOPT}
TARGETS = (*FOLDER_LAYOUTS, "gguf", "dat", "dat2", "dat-dense", "safetensors")
DENSE_TARGETS = ("dat-dense", "safetensors")
DAT_NAME = "model.dat"
Done = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A model on its way out: everything that a writer needs."""

    config: Any
    architecture: str  # transformers' class name
    tensors: Tensors
    kept: tuple[str, ...]  # linear layers that are not NVFP4
    write_tokenizer: Callable[[Path], None]
    gguf_metadata: dict[str, Any] | None
    name: str

    @property
    def scheme(self) -> Scheme:
        scaled = any(name.endswith(".input_scale") for name in self.tensors)
        return "w4a4" if scaled else "w4a16"

    @property
    def nbytes(self) -> int:
        """What the tensors take when written; quantised kinds are decoded to float32."""
        return sum(_written_nbytes(stored) for stored in self.tensors.values())


def outgoing_from_source(
    source: Source,
    target: str,
    *,
    keep: Sequence[str] = KEEP_BF16,
    recipe: Recipe = FOURGE,
) -> Outgoing:
    """A source on its way to a target: its NVFP4 weights as they are, the rest quantised.

    Raises:
        FormatError: the tensors are not the model's, or a weight cannot be quantised.
        ConfigError: there is no such target.
    """
    require_target(target)
    source = untied(source)
    model = empty_model(source.config, torch.bfloat16)
    source = replace(source, tensors=matched(model, source.tensors))
    if target not in DENSE_TARGETS:
        layers = to_quantize(model, keep)
        _refuse_unkeepable(source.tensors, linear_names(model), keep)
        source = quantized_source(source, layers, recipe, single_level=target == "dat")
    return Outgoing(
        source.config,
        type(model).__name__,
        _in_target_dtypes(source.tensors, target),
        tuple(n for n in linear_names(model) if _kind(source.tensors, n) != NVFP4),
        source.write_tokenizer,
        source.gguf_metadata,
        source.path.stem,
    )


def outgoing_from_model(
    model: Any, target: str, write_tokenizer: Callable[[Path], None], name: str
) -> Outgoing:
    """A model in memory on its way to a target: the codes that its last forward used."""
    require_target(target)
    tensors = live_tensors(model)
    kept = tuple(n for n in linear_names(model) if _kind(tensors, n) != NVFP4)
    config = model.config
    if LM_HEAD in tensors:
        config = untied_config(config)
    return Outgoing(
        config, type(model).__name__, _in_target_dtypes(tensors, target), kept, write_tokenizer,
        None, name,
    )  # fmt: skip


def export(
    outgoing: Outgoing,
    out: Path,
    target: str,
    *,
    overwrite: bool = False,
    done: Done | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Write it.

    Raises:
        OutputError: ``out`` exists, or the disk is too small.
        FormatError: the target cannot hold the model.
    """
    require_target(target)
    require_name(out, target)
    refuse_existing(out, overwrite=overwrite)
    _require_ours(out)
    _require_space(out, outgoing.nbytes)
    tensors = reporting(outgoing.tensors, done) if done else outgoing.tensors
    if target == "gguf":
        _write_gguf(outgoing, tensors, out, overwrite=overwrite)
        return
    with whole_folder(out, overwrite=overwrite) as folder:
        if target.startswith("dat"):
            write_dat(folder / DAT_NAME, tensors, single_level=target == "dat")
        else:
            layout = FOLDER_LAYOUTS.get(target, COMPRESSED_TENSORS)
            _write_weights(folder, tensors, layout, shard_bytes)
        _write_config(folder, outgoing, target)
        outgoing.write_tokenizer(folder)


def _written_nbytes(stored: Stored) -> int:
    if stored.kind == NVFP4:
        return Nvfp4Matrix.nbytes_for(*stored.shape)
    return prod(stored.shape) * (KINDS[stored.kind].itemsize if stored.kind in KINDS else 4)


def require_name(out: Path, target: str) -> None:
    """Raise for a name that says something else than what would be written there."""
    if target == "gguf" and out.suffix != ".gguf":
        raise ConfigError(f"A GGUF is one file; {out} has no .gguf.", fix=f"call it {out}.gguf")
    if target != "gguf" and out.suffix in (".gguf", ".dat", ".safetensors"):
        raise ConfigError(
            f"{target} is a folder; {out} looks like a file.", fix=f"call it {out.with_suffix('')}"
        )


def require_target(target: str) -> None:
    if target not in TARGETS:
        raise ConfigError(f"There is no target {target!r}.", fix=f"one of: {', '.join(TARGETS)}")


def _refuse_unkeepable(tensors: Tensors, names: Sequence[str], keep: Sequence[str]) -> None:
    asked = [word for word in keep if word not in KEEP_BF16]
    for name in names:
        if is_kept(name, asked) and _kind(tensors, name) == NVFP4:
            raise ConfigError(
                f"{name} is NVFP4 already and cannot be kept in bf16.",
                fix="drop it from the keep list, or convert from the dense model",
            )


def _kind(tensors: Tensors, layer: str) -> str | None:
    stored = tensors.get(f"{layer}.weight")
    return stored.kind if stored else None


def _in_target_dtypes(tensors: Tensors, target: str) -> Tensors:
    if target == "safetensors":
        return dense_tensors(tensors, "bf16")
    if target == "dat-dense":
        return dense_tensors(tensors, "f32")
    return with_dense_in(tensors, "bf16") if target in FOLDER_LAYOUTS else checked(tensors)


def _require_ours(out: Path) -> None:
    """Raise before ``--overwrite`` takes a folder with it that is not a model."""
    if out.is_dir() and any(out.iterdir()) and not (out / "config.json").exists():
        raise OutputError(
            f"{out} is a folder of something else.",
            why="overwriting replaces the whole folder, and this one has no config.json",
            fix="choose another path, or remove the folder yourself",
        )


def _require_space(out: Path, nbytes: int) -> None:
    folder = next(parent for parent in out.absolute().parents if parent.exists())
    free = shutil.disk_usage(folder).free
    if nbytes > free:
        raise OutputError(
            f"{out} needs {size(nbytes)}; the disk has {size(free)} left.",
            fix=f"free some space under {folder}, or write elsewhere",
        )


def _write_weights(folder: Path, tensors: Tensors, layout: Layout, shard_bytes: int) -> None:
    records = [r for name, stored in tensors.items() for r in announced(name, stored, layout)]
    values = (v for name, stored in tensors.items() for v in parts(name, stored, layout))
    write_folder(folder, records, values, shard_bytes=shard_bytes)


def _write_config(folder: Path, outgoing: Outgoing, target: str) -> None:
    outgoing.config.save_pretrained(folder)
    content = read_json(folder / "config.json")
    content |= {"architectures": [outgoing.architecture], "dtype": "bfloat16"}
    content.pop("quantization_config", None)
    if target == "compressed-tensors":
        content["quantization_config"] = quant_config.compressed_tensors(
            outgoing.scheme, outgoing.kept
        )
    if target == "modelopt":
        content["quantization_config"] = quant_config.modelopt(outgoing.scheme, outgoing.kept)
        hf_quant = quant_config.hf_quant_config(outgoing.scheme, outgoing.kept)
        write_json(folder / "hf_quant_config.json", hf_quant)
    content["fourge_version"] = __version__
    write_json(folder / "config.json", content)


def _write_gguf(outgoing: Outgoing, tensors: Tensors, out: Path, *, overwrite: bool) -> None:
    config = outgoing.config
    architecture = gguf_architecture(config)
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    renamed = from_transformers(tensors, architecture, heads, kv_heads)
    metadata = outgoing.gguf_metadata or _fresh_metadata(outgoing)
    with whole_file(out, overwrite=overwrite) as path:
        write_gguf(path, renamed, metadata)


def _fresh_metadata(outgoing: Outgoing) -> dict[str, Any]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        outgoing.write_tokenizer(Path(folder))
        return metadata_of(outgoing.config, Path(folder), outgoing.name)
