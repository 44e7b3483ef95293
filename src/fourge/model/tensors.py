"""What a model's tensors will be when written: quantised lazily, group by group.

A mapping goes in and a mapping comes out; nothing is read until a writer asks. The members of a
scale group need each other's largest value, so the first one asked for reads them all, and
their codes (4.5 bits a weight) wait for their turn.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fourge.formats.stored import NVFP4, Stored, Tensors, derived, in_memory
from fourge.model.build import LM_HEAD, require_finite
from fourge.model.swap import is_kept, nvfp4_layers, scale_groups
from fourge.nvfp4.matrix import Nvfp4Matrix, dequantize, quantize, require_blocks, tensor_scale_for
from fourge.nvfp4.recipe import Recipe


def live_tensors(model: nn.Module) -> dict[str, Stored]:
    """The tensors of a model in memory: codes for NVFP4 layers, parameters for the rest."""
    layers = nvfp4_layers(model)
    tensors: dict[str, Stored] = {}
    for name, parameter in model.named_parameters():
        layer = layers.get(name.removesuffix(".weight"))
        if layer is None or name.endswith(".bias"):
            tensors[name] = in_memory(parameter.detach())
            continue
        nbytes = Nvfp4Matrix.nbytes_for(*parameter.shape)
        tensors[name] = Stored(tuple(parameter.shape), NVFP4, nbytes, layer.codes)
        if layer.scheme == "w4a4":
            scale = layer.require_input_scale()
            tensors[f"{name.removesuffix('.weight')}.input_scale"] = in_memory(scale)
    if LM_HEAD not in tensors and "lm_head" in layers:  # tied to an embedding, but quantised
        head = layers["lm_head"]
        nbytes = Nvfp4Matrix.nbytes_for(*head.weight.shape)
        tensors[LM_HEAD] = Stored(tuple(head.weight.shape), NVFP4, nbytes, head.codes)
    return tensors


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
    for group in scale_groups(todo):
        weights = {f"{name}.weight": tensors[f"{name}.weight"] for name in group}
        memo: dict[str, Nvfp4Matrix] = {}
        for name, stored in weights.items():
            rows, cols = stored.shape
            read = partial(_from_group, name, weights, memo, recipe, single_level)
            result[name] = Stored((rows, cols), NVFP4, Nvfp4Matrix.nbytes_for(rows, cols), read)
    return result


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
        scale = torch.ones(()) if single_level else tensor_scale_for(dense.values(), recipe=recipe)
        for each, value in dense.items():
            memo[each] = quantize(value, recipe=recipe, tensor_scale=scale)
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


def with_dense_in(tensors: Tensors, kind: str) -> dict[str, Stored]:
    """The mapping with what is not NVFP4 in one dtype; activation scales stay float32."""
    keep = (NVFP4, "i64", "i32", "bool")
    return {
        name: stored if stored.kind in keep or name.endswith(".input_scale")
        else in_dtype(name, stored, kind)
        for name, stored in tensors.items()
    }  # fmt: skip


def in_dtype(name: str, stored: Stored, kind: str) -> Stored:
    from fourge.formats.stored import KINDS

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
    """The linear layers that are not on the keep list."""
    return [name for name in linear_names(model) if not is_kept(name, keep)]
