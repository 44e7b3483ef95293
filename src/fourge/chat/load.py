"""A model in memory, on one of the paths that lead to the same logits.

| path     | a quantised layer has                  | for                                    |
|----------|----------------------------------------|----------------------------------------|
| `dense`  | -- (none is quantised)                 | a model as it is                       |
| `train`  | a master weight, and codes made of it  | what the training loop computes        |
| `packed` | codes and scales, as in an export      | serving: 4.5 bits a weight, nothing else |

`train` and `packed` are the same model, bit for bit: one makes its codes from weights in memory,
the other group by group on the way from the file. Unless told otherwise a model that is NVFP4, or a
checkpoint of a run that trains in NVFP4, is packed, and any other model dense.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

import torch

from fourge.checkpoint.source import Opened
from fourge.core.errors import ConfigError
from fourge.core.process import trim_heap
from fourge.formats.stored import KIND_OF, NVFP4
from fourge.model.build import EMBEDDING, LM_HEAD, empty_model, load_model, matched, untied
from fourge.model.mixed import compute_in_
from fourge.model.source import Source
from fourge.model.swap import choose_device, compute_dtype, quantize_
from fourge.model.tensors import linear_names, quantized_source, to_quantize, with_dense_in
from fourge.nvfp4.recipe import FOURGE

PathName = Literal["dense", "train", "packed"]
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that can be talked to."""

    model: Any
    path: PathName
    dtype: torch.dtype


def load(
    opened: Opened,
    *,
    path: str = "auto",
    device: str = "auto",
    dtype: str = "auto",
    progress: Progress | None = None,
) -> Loaded:
    """Load a model on a path, ready to run.

    Raises:
        ConfigError: it cannot go that way, or there is no such device.
        FormatError: its tensors are not those of its config.
    """
    place = choose_device(device)
    kind = compute_dtype(place) if dtype == "auto" else getattr(torch, dtype)
    chosen, held = choose_path(opened, path), _held_in(opened, kind)
    arguments: dict[str, Any] = {"dtype": held, "device": place, "progress": progress}
    source, layers = opened.source, _layers(opened)
    if chosen != "dense" or opened.checkpoint is not None:  # as a run computes, to the bit
        arguments["narrow_ends"] = place.type == "cpu"
    if chosen == "train" and not has_nvfp4(source) and opened.scheme != "w4a4":
        model = load_model(source, **arguments)
        quantize_(model, keep=[name for name in linear_names(model) if name not in layers])
    elif chosen == "dense":
        model = load_model(source, **arguments)
    else:
        source = _quantized(source, layers, held)
        model = load_model(source, codes_only=chosen == "packed", **arguments)
    if held != kind:
        compute_in_(model, kind)
    trim_heap()
    return Loaded(model, chosen, kind)


def choose_path(opened: Opened, asked: str) -> PathName:
    """The path to take, by rule.

    Raises:
        ConfigError: there is none of that name, or none for this model.
    """
    quantized = has_nvfp4(opened.source) or opened.scheme != "none"
    if asked == "dense" and quantized:
        raise ConfigError(
            f"{opened.source.path} is NVFP4; it has no dense path.", fix="use train or packed"
        )
    if asked == "auto":
        return "packed" if quantized else "dense"
    if asked not in get_args(PathName):
        raise ConfigError(f"There is no path {asked!r}.", fix="one of: auto, dense, train, packed")
    return cast("PathName", asked)


def has_nvfp4(source: Source) -> bool:
    """Whether any weight is codes: such a model has no dense form."""
    return any(stored.kind == NVFP4 for stored in source.tensors.values())


def _held_in(opened: Opened, kind: torch.dtype) -> torch.dtype:
    """The dtype of weights in memory: codes are made of a checkpoint's master as it is."""
    tensors = opened.source.tensors.items()
    is_wide = any(s.kind == "f32" for name, s in tensors if not name.endswith(".input_scale"))
    return torch.float32 if opened.checkpoint is not None and is_wide else kind


def _layers(opened: Opened) -> list[str]:
    """The layers that are to be NVFP4."""
    if opened.layers:
        return list(opened.layers)
    if opened.checkpoint is None and has_nvfp4(opened.source):
        stored = opened.source.tensors.items()
        return [name.removesuffix(".weight") for name, s in stored if s.kind == NVFP4]
    config = untied(opened.source).config
    return to_quantize(empty_model(config, torch.bfloat16), opened.keep)


def _quantized(source: Source, layers: list[str], dtype: torch.dtype) -> Source:
    """The source with these layers in NVFP4, quantised from weights of this dtype."""
    source = untied(source)
    scales = {n: s for n, s in source.tensors.items() if n.endswith(".input_scale")}
    dense = {n: s for n, s in source.tensors.items() if n not in scales}
    shaped = matched(empty_model(source.config, dtype), dense)
    ends = {n: s for n, s in shaped.items() if n in (EMBEDDING, LM_HEAD)}
    wide = with_dense_in(shaped, KIND_OF[dtype])
    # A head that is not quantised is not read before it is placed, and is placed as it is stored.
    tensors = wide if "lm_head" in layers else {**wide, **ends}
    source = quantized_source(replace(source, tensors=tensors), layers, FOURGE)
    return replace(source, tensors={**source.tensors, **scales})
