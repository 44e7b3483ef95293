"""``quantize_``: put NVFP4 layers in the place of a model's linear layers.

Which layers share a tensor scale is decided by name, because it is a property of the serving
engines: they fuse q/k/v and gate/up into one matrix and keep one scale for it.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import nn

from fourge.core.errors import ConfigError
from fourge.model.mixed import MixedLinear
from fourge.nvfp4.gemm import Backend, Scheme, choose_backend, require_fp4_shape
from fourge.nvfp4.linear import Nvfp4Linear, ScaleGroup
from fourge.nvfp4.matrix import require_blocks
from fourge.nvfp4.recipe import FOURGE, Recipe

logger = logging.getLogger(__name__)

KEEP_BF16 = ("embed_tokens", "lm_head", "norm")
FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


@dataclass(frozen=True, slots=True)
class Swapped:
    """What ``quantize_`` did."""

    scheme: Scheme
    backend: Backend
    quantized: tuple[str, ...]
    kept: tuple[str, ...]  # linear layers that stay as they are

    def __str__(self) -> str:
        return (
            f"{len(self.quantized)} layers in NVFP4 ({self.scheme}, backend {self.backend}), "
            f"{len(self.kept)} kept: {', '.join(self.kept) or 'none'}"
        )


def quantize_(
    model: nn.Module,
    *,
    scheme: Scheme = "w4a16",
    keep: Sequence[str] = KEEP_BF16,
    recipe: Recipe = FOURGE,
    backend: str = "auto",
) -> Swapped:
    """Swap the linear layers of a model for NVFP4 ones, in place.

    ``keep`` lists names, or parts of names, of layers to leave as they are.

    Raises:
        ConfigError: an unknown scheme or backend, or nothing left to quantise.
        FormatError: a layer whose columns do not divide into blocks of 16.
    """
    if scheme not in ("w4a16", "w4a4"):
        raise ConfigError(f"There is no scheme {scheme!r}.", fix="one of: w4a16, w4a4")
    if nvfp4_layers(model):
        raise ConfigError("The model has NVFP4 layers already.", fix="quantise it once")
    linears = {n: m for n, m in model.named_modules() if type(m) in (nn.Linear, MixedLinear)}
    chosen = [name for name in linears if not is_kept(name, keep)]
    if not chosen:
        raise ConfigError("No linear layer is left to quantise.", fix="shorten the keep list")
    for name in chosen:
        require_blocks(linears[name].weight.shape, name)
    device = next(model.parameters()).device
    used = choose_backend(backend, scheme, device)
    if used == "fp4":
        for name in chosen:
            require_fp4_shape(*linears[name].weight.shape)
    layers = {
        name: Nvfp4Linear(linears[name], scheme=scheme, backend=used, recipe=recipe)
        for name in chosen
    }
    for name, layer in layers.items():
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, layer)
    for group in scale_groups(chosen):
        ScaleGroup([layers[name] for name in group], recipe)
    kept = tuple(name for name in linears if name not in layers)
    swapped = Swapped(scheme, used, tuple(chosen), kept)
    if device.type != "meta":  # a model that is only planned is not worth a line
        logger.info("%s", swapped)
    return swapped


def is_kept(name: str, keep: Iterable[str]) -> bool:
    """Whether a layer is on the list, by its whole name or by whole parts of it between dots."""
    return any(f".{word.strip('.')}." in f".{name}." for word in keep)


def scale_groups(names: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Layers that share a tensor scale, from the names of all quantised ones.

    A layer that is fused with nothing is in a group of its own.
    """
    present = list(names)
    have, seen = set(present), set[str]()
    for name in present:
        if name in seen:
            continue
        parent, _, child = name.rpartition(".")
        prefix = f"{parent}." if parent else ""
        fused = next((group for group in FUSED if child in group), (child,))
        group = tuple(prefix + each for each in fused if prefix + each in have)
        seen.update(group)
        yield group


def nvfp4_layers(model: nn.Module) -> dict[str, Nvfp4Linear]:
    """The NVFP4 layers of a model, by name."""
    return {name: m for name, m in model.named_modules() if isinstance(m, Nvfp4Linear)}


def scale_groups_of(model: nn.Module) -> list[ScaleGroup]:
    """Each scale group of a model once."""
    return list({id(m.group): m.group for m in nvfp4_layers(model).values()}.values())


def choose_device(asked: str) -> torch.device:
    """The device of this name; ``auto`` is CUDA where there is one.

    Raises:
        ConfigError: CUDA is asked for and torch finds none.
    """
    found = torch.cuda.is_available()
    if asked == "cuda" and not found:
        raise ConfigError("torch finds no CUDA device.", fix="use the device cpu, or auto")
    return torch.device(asked if asked != "auto" else "cuda" if found else "cpu")


def compute_dtype(device: torch.device) -> torch.dtype:
    """What a model answers in: bf16 on accelerators; float32 on the CPU, where products are few."""
    return torch.float32 if device.type == "cpu" else torch.bfloat16


def training_dtype(asked: str, device: torch.device) -> torch.dtype:
    """What a step computes in; ``auto`` is bf16 wherever that is multiplied faster than float32."""
    if asked != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16}[asked]
    return torch.bfloat16 if device.type != "cpu" or multiplies_bf16() else torch.float32


@cache
def multiplies_bf16() -> bool:
    """Whether this is an x86 with products of bf16: twice as fast as float32, or 3 times slower."""
    known = torch.cpu.get_capabilities()
    return bool(known.get("avx512_bf16") or known.get("amx_bf16"))
