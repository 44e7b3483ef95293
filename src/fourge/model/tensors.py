"""What a model's tensors will be when written: quantised lazily, group by group.

A mapping goes in and a mapping comes out; nothing is read until a writer asks. The members of a
scale group need each other's largest value, so the first one asked for reads them all, and
their codes (4.5 bits a weight) wait for their turn.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fourge.core.errors import ConfigError, FormatError
from fourge.formats.stored import KINDS, NVFP4, Stored, Tensors, derived, in_memory
from fourge.model.build import EMBEDDING, LM_HEAD, require_finite, saved_buffers, untied_config
from fourge.model.source import Source
from fourge.model.swap import KEEP_BF16, is_kept, nvfp4_layers, scale_groups
from fourge.nvfp4.linear import Nvfp4Linear
from fourge.nvfp4.matrix import Nvfp4Matrix, amax_of, dequantize, quantize, require_blocks
from fourge.nvfp4.recipe import Recipe


def live_tensors(model: nn.Module) -> dict[str, Stored]:
    """The tensors of a model in memory: codes for NVFP4 layers, the rest as it is."""
    layers = nvfp4_layers(model)
    tensors: dict[str, Stored] = {}
    for name, value in (dict(model.named_parameters()) | saved_buffers(model)).items():
        layer = layers.get(name.removesuffix(".weight"))
        if layer is not None:
            tensors |= _live_layer(name.removesuffix(".weight"), layer)
        elif not name.endswith(".input_scale"):
            tensors[name] = in_memory(value.detach())
    if LM_HEAD not in tensors and "lm_head" in layers:  # tied to an embedding, but quantised
        tensors |= _live_layer("lm_head", layers["lm_head"])
    return tensors


def _live_layer(name: str, layer: Nvfp4Linear) -> dict[str, Stored]:
    shape = layer.out_features, layer.in_features
    weight = Stored(shape, NVFP4, Nvfp4Matrix.nbytes_for(*shape), layer.codes)
    if layer.scheme == "w4a16":
        return {f"{name}.weight": weight}
    scale = in_memory(layer.require_input_scale().float())
    return {f"{name}.weight": weight, f"{name}.input_scale": scale}


def quantized_source(
    source: Source, layers: Sequence[str], recipe: Recipe, *, single_level: bool = False
) -> Source:
    """The source with the weights of these linear layers in NVFP4, as ``quantized_tensors``.

    A tied head that is one of them parts from the embedding, which is not quantised.
    """
    tensors, config = dict(source.tensors), source.config
    if "lm_head" in layers and LM_HEAD not in tensors:
        tensors[LM_HEAD] = tensors[EMBEDDING]
        config = untied_config(config)
    quantized = quantized_tensors(tensors, layers, recipe, single_level=single_level)
    return replace(source, config=config, tensors=quantized)


def quantized_tensors(
    tensors: Tensors, layers: Sequence[str], recipe: Recipe, *, single_level: bool = False
) -> dict[str, Stored]:
    """The mapping with the weights of these linear layers in NVFP4.

    Weights that are NVFP4 already stay as they are. ``single_level`` fixes the tensor scale at 1.

    Raises:
        FormatError: a weight whose columns do not divide into blocks of 16.
    """
    result = dict(tensors)
    todo = [name for name in layers if tensors[f"{name}.weight"].kind != NVFP4]
    for name in todo:
        require_blocks(tensors[f"{name}.weight"].shape, name)
    _require_whole_groups(tensors, layers)
    for group in scale_groups(todo):
        weights = {f"{name}.weight": tensors[f"{name}.weight"] for name in group}
        memo: dict[str, Nvfp4Matrix] = {}
        for name, stored in weights.items():
            rows, cols = stored.shape
            read = partial(_from_group, name, weights, memo, recipe, single_level)
            result[name] = Stored((rows, cols), NVFP4, Nvfp4Matrix.nbytes_for(rows, cols), read)
    return result


def _require_whole_groups(tensors: Tensors, layers: Sequence[str]) -> None:
    """Raise where a fused group is half quantised: its members could not share a scale."""
    for group in scale_groups(layers):
        kinds = {name: tensors[f"{name}.weight"].kind == NVFP4 for name in group}
        if len(set(kinds.values())) > 1:
            done = next(name for name, is_done in kinds.items() if is_done)
            rest = next(name for name, is_done in kinds.items() if not is_done)
            raise FormatError(
                f"{done} is NVFP4 already and {rest} is not.",
                why="serving engines fuse them and need one scale for both",
                fix=f"convert from the dense model, or --keep {rest.rpartition('.')[2]}",
            )


def _from_group(
    name: str,
    weights: Tensors,
    memo: dict[str, Nvfp4Matrix],
    recipe: Recipe,
    single_level: bool,
) -> Nvfp4Matrix:
    if name not in memo:
        dense = {each: stored.dense() for each, stored in weights.items()}
        for each, value in dense.items():
            require_finite(each, value)
        largest = amax_of(dense.values())
        one = torch.ones(()) if single_level else None
        for each, value in dense.items():
            memo[each] = quantize(value, recipe=recipe, tensor_scale=one, amax=largest)
    return memo.pop(name)


def dense_tensors(tensors: Tensors, kind: str) -> dict[str, Stored]:
    """The mapping with every weight decoded, and floating point in one dtype."""
    result: dict[str, Stored] = {}
    for name, stored in tensors.items():
        if stored.kind == NVFP4:
            rows, cols = stored.shape
            nbytes = 4 * rows * cols
            stored = Stored(stored.shape, "f32", nbytes, partial(_decoded, stored))
        if not name.endswith(".input_scale"):
            result[name] = in_dtype(name, stored, kind)
    return result


def _decoded(stored: Stored) -> Tensor:
    return dequantize(stored.matrix())


def checked(tensors: Tensors) -> dict[str, Stored]:
    """The mapping as it is, refusing values that are not finite when they are read."""
    return {
        name: s if s.kind == NVFP4 else Stored(s.shape, s.kind, s.nbytes, partial(_finite, name, s))
        for name, s in tensors.items()
    }


def _finite(name: str, stored: Stored) -> Tensor:
    value = stored.dense()
    require_finite(name, value)
    return value


def with_dense_in(tensors: Tensors, kind: str) -> dict[str, Stored]:
    """The mapping with what is not NVFP4 in one dtype; activation scales stay float32."""
    return {
        name: stored if stored.kind == NVFP4 or name.endswith(".input_scale")
        else in_dtype(name, stored, kind)
        for name, stored in tensors.items()
    }  # fmt: skip


def in_dtype(name: str, stored: Stored, kind: str) -> Stored:
    """The tensor cast when it is read; whole numbers and flags stay what they are."""
    if stored.kind in ("i64", "i32", "i16", "i8", "u8", "bool"):
        return stored
    return derived(stored, kind, partial(_cast, name, KINDS[kind]))


def _cast(name: str, dtype: torch.dtype, value: Tensor) -> Tensor:
    require_finite(name, value)
    return value.to(dtype)


def reporting(tensors: Tensors, done: Callable[[str], None]) -> dict[str, Stored]:
    """The mapping, telling of each tensor when it has been read."""
    return {
        name: Stored(s.shape, s.kind, s.nbytes, partial(_report, name, s, done))
        for name, s in tensors.items()
    }


def _report(name: str, stored: Stored, done: Callable[[str], None]) -> Any:
    value = stored.read()
    done(name)
    return value


def linear_names(model: nn.Module) -> list[str]:
    """The linear layers of a model, in order."""
    return [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]


def to_quantize(model: nn.Module, keep: Sequence[str]) -> list[str]:
    """The linear layers that are not on the keep list.

    Raises:
        ConfigError: there is none, or a name on the list is no layer's.
    """
    names = linear_names(model)
    modules = [name for name, _ in model.named_modules()]
    unknown = [word for word in keep if word not in KEEP_BF16 and not _any_kept(modules, word)]
    if unknown:
        raise ConfigError(
            f"No layer is called {unknown[0]!r}.",
            why="a name on the keep list is a layer's, or a whole part of it between dots",
            fix=f"for example: {', '.join(sorted({name.rpartition('.')[2] for name in names}))}",
        )
    chosen = [name for name in names if not is_kept(name, keep)]
    if not chosen:
        raise ConfigError(
            "No linear layer is left to quantise.",
            why=f"the model has {len(names)} of them, all on the keep list",
            fix="shorten the keep list, or use --to safetensors",
        )
    return chosen


def _any_kept(names: Sequence[str], word: str) -> bool:
    return any(is_kept(name, [word]) for name in names)
