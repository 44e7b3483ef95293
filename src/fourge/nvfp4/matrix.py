"""NVFP4 storage of a 2-D weight, and the two verbs: ``quantize`` and ``dequantize``.

    value = level[code] * block_scale * tensor_scale
            E2M1          E4M3, 1 per 16   float32, 1 per matrix or group

``tensor_scale`` MULTIPLIES when we decode. Files in the compressed-tensors layout store its
reciprocal under the name ``weight_global_scale``; only that writer and reader may know it.

Cost: 4 + 8/16 = 4.5 bits per weight, plus 4 bytes per matrix.

``kernel`` chooses plain torch ("reference", the definition) or the same functions compiled; the
default recipe has a kernel of its own on CPUs (``native.py``), which gives the same bits.

Shapes: R rows, C columns, B = C / 16 blocks per row, N = R * B blocks of K = 16 values.
"""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import torch
from torch import Tensor

from fourge.core.errors import FormatError
from fourge.nvfp4 import blocks, native
from fourge.nvfp4.blocks import BLOCK
from fourge.nvfp4.compiled import compiled
from fourge.nvfp4.recipe import FOURGE, Recipe, Run, reference

Kernel = Literal["reference", "compiled"]
CHUNK = 1 << 20  # blocks worked on at once: bounds the scratch at about 2.5 bytes per value


@dataclass(frozen=True, slots=True)
class Nvfp4Matrix:
    """A quantised weight. Fields are named for what the decoder does with them."""

    packed_RC: Tensor  # uint8, C/2 wide; the even column is the low half
    block_scale_RB: Tensor  # float8_e4m3fn
    tensor_scale: Tensor  # float32, 0-d; multiplies

    def __post_init__(self) -> None:
        rows, half = self.packed_RC.shape
        if tuple(self.block_scale_RB.shape) != (rows, half * 2 // BLOCK) or half % (BLOCK // 2):
            raise FormatError(
                f"{rows} x {half} packed bytes do not go with block scales of shape "
                f"{tuple(self.block_scale_RB.shape)}.",
                why=f"{BLOCK} values, 8 bytes, share one scale",
            )

    def __reduce__(self) -> tuple[Any, ...]:
        # torch cannot pickle the storage of an E4M3 tensor; its bytes it can.
        return _from_bytes, (
            self.packed_RC,
            self.block_scale_RB.view(torch.uint8),
            self.tensor_scale,
        )

    @property
    def shape(self) -> tuple[int, int]:
        return self.packed_RC.shape[0], self.packed_RC.shape[1] * 2

    @staticmethod
    def nbytes_for(rows: int, cols: int) -> int:
        """Exact size of a matrix of this shape. The planner and the allocator both ask here."""
        return rows * cols // 2 + rows * cols // BLOCK + 4

    @classmethod
    def empty(cls, rows: int, cols: int, device: torch.device | str) -> Self:
        """A matrix of this shape whose values are whatever was there."""
        return cls(
            torch.empty(rows, cols // 2, dtype=torch.uint8, device=device),
            torch.empty(rows, cols // BLOCK, dtype=torch.float8_e4m3fn, device=device),
            torch.empty((), device=device),
        )

    def to(self, device: torch.device) -> Self:
        """The same matrix on a device; itself if it is there."""
        if self.packed_RC.device == device:
            return self
        parts = (self.packed_RC, self.block_scale_RB, self.tensor_scale)
        return type(self)(*(part.to(device) for part in parts))

    def rows(self, index: Tensor) -> Self:
        """These rows, in this order; the tensor scale is kept."""
        scale_bytes = self.block_scale_RB.view(torch.uint8)[index]
        return type(self)(
            self.packed_RC[index], scale_bytes.view(torch.float8_e4m3fn), self.tensor_scale
        )


def _from_bytes(packed_RC: Tensor, scale_bytes_RB: Tensor, tensor_scale: Tensor) -> Nvfp4Matrix:
    return Nvfp4Matrix(packed_RC, scale_bytes_RB.view(torch.float8_e4m3fn), tensor_scale)


def quantize(
    weight_RC: Tensor,
    *,
    recipe: Recipe = FOURGE,
    tensor_scale: Tensor | None = None,
    amax: Tensor | None = None,
    kernel: Kernel = "compiled",
) -> Nvfp4Matrix:
    """Quantise a weight, rounding to nearest with ties to the even code.

    The tensor scale is the weight's own; or that of its group, from the largest magnitude
    ``amax`` of them all; or ``tensor_scale`` as given.

    Raises:
        FormatError: the columns do not divide into blocks of 16, or a value is not finite.
    """
    require_blocks(weight_RC.shape)
    weight_RC = weight_RC.detach().contiguous()
    if tensor_scale is None and amax is None:
        amax = amax_of([weight_RC])
    scale = _scale(recipe, tensor_scale, amax)
    if kernel == "compiled" and recipe is FOURGE and native.can_encode(weight_RC, scale):
        return _natively(weight_RC, scale)
    run = runner(kernel)
    value_NK, amax_N = as_blocks(weight_RC, run)
    encode = run(_encoder(recipe))
    packed_NH = torch.empty(len(value_NK), BLOCK // 2, dtype=torch.uint8, device=scale.device)
    block_scale_N = torch.empty(len(value_NK), dtype=torch.float8_e4m3fn, device=scale.device)
    for part in chunks(len(value_NK)):
        chosen_N = recipe.block_scale(run, value_NK[part], amax_N[part], scale)
        packed_NH[part] = run(blocks.pack)(encode(value_NK[part], chosen_N, scale))
        block_scale_N[part] = chosen_N.to(torch.float8_e4m3fn)
    return from_blocks(weight_RC, packed_NH, block_scale_N, recipe.multiplier(scale))


def _natively(weight_RC: Tensor, tensor_scale: Tensor) -> Nvfp4Matrix:
    """``FOURGE`` in one pass over a weight that ``native.can_encode`` allows."""
    rows, cols = weight_RC.shape
    matrix = Nvfp4Matrix.empty(rows, cols, weight_RC.device)
    if not native.encode_(weight_RC, tensor_scale, matrix.packed_RC, matrix.block_scale_RB):
        raise _not_finite("weight")
    return replace(matrix, tensor_scale=tensor_scale)


def dequantize(
    matrix: Nvfp4Matrix,
    *,
    dtype: torch.dtype = torch.float32,
    out: Tensor | None = None,
    kernel: Kernel = "compiled",
) -> Tensor:
    """Decode. The inverse of ``quantize`` up to the rounding it did.

    The product is made in float32 and rounded once to ``dtype``; with a power of two as tensor
    scale neither rounds. ``out``, of any floating dtype, is written and returned when given.
    """
    run = runner(kernel)
    if out is None:
        out = torch.empty(matrix.shape, dtype=dtype, device=matrix.packed_RC.device)
    words_NW = matrix.packed_RC.view(torch.int32).view(-1, 2)
    scale_N = matrix.block_scale_RB.view(-1)
    out_NWE = out.view(-1, 2, 8)
    for part in chunks(len(words_NW)):
        unit_N = run(_unit)(scale_N[part], matrix.tensor_scale)
        run(blocks.dequantize_words_)(words_NW[part], unit_N, out_NWE[part])
    return out


def fake_quantize(
    weight_RC: Tensor,
    *,
    recipe: Recipe = FOURGE,
    tensor_scale: Tensor | None = None,
    out: Tensor | None = None,
    kernel: Kernel = "compiled",
    what: str = "weight",
) -> Tensor:
    """``dequantize(quantize(weight))`` without the codes in between: the same bits, one pass less.

    Raises:
        FormatError: as ``quantize``.
    """
    run = runner(kernel)
    value_NK, amax_N = as_blocks(weight_RC, run, what)
    scale = _scale(recipe, tensor_scale, amax_N)
    multiplier = recipe.multiplier(scale)
    write_ = run(_faker(recipe))
    if out is None:
        out = torch.empty(weight_RC.shape, dtype=torch.float32, device=scale.device)
    out_NK = out.view(-1, BLOCK)
    for part in chunks(len(value_NK)):
        chosen_N = recipe.block_scale(run, value_NK[part], amax_N[part], scale)
        write_(value_NK[part], chosen_N, scale, multiplier, out_NK[part])
    return out


def tensor_scale_for(weights: Iterable[Tensor], *, recipe: Recipe = FOURGE) -> Tensor:
    """The one tensor scale of weights that a serving engine fuses (q/k/v; gate/up)."""
    return tensor_scale_of(amax_of(weights), recipe=recipe)


def tensor_scale_of(amax: Tensor, *, recipe: Recipe = FOURGE) -> Tensor:
    """The same, for weights of which the largest magnitude is known."""
    return recipe.multiplier(_scale(recipe, None, amax))


def amax_of(weights: Iterable[Tensor]) -> Tensor:
    """The largest magnitude of several weights, as float32."""
    ends = [torch.stack(torch.aminmax(weight.detach())) for weight in weights]  # no temporary
    return torch.stack([each.abs().amax().float() for each in ends]).amax()


def runner(kernel: Kernel) -> Run:
    return compiled if kernel == "compiled" else reference


def chunks(count: int) -> Iterable[slice]:
    return (slice(start, start + CHUNK) for start in range(0, count, CHUNK))


def as_blocks(weight_RC: Tensor, run: Run, what: str = "weight") -> tuple[Tensor, Tensor]:
    """The weight as N x 16 blocks, and the largest magnitude of each.

    Raises:
        FormatError: as ``quantize``.
    """
    require_blocks(weight_RC.shape)
    value_NK = weight_RC.detach().contiguous().view(-1, BLOCK)
    amax_N = run(blocks.block_amax)(value_NK)
    if not torch.isfinite(amax_N.amax()):  # a NaN anywhere makes the maximum NaN
        raise _not_finite(what)
    return value_NK, amax_N


def _not_finite(what: str) -> FormatError:
    return FormatError(
        f"The {what} has a value that is not finite.",
        why="a NaN or an infinity has no scale",
        fix="go back to a checkpoint whose weights are finite",
    )


def require_blocks(shape: Iterable[int], name: str = "this weight") -> None:
    """Raise unless a weight of this shape divides into blocks."""
    dims = tuple(shape)
    if len(dims) != 2 or dims[1] % BLOCK or 0 in dims:
        raise FormatError(
            f"NVFP4 needs a matrix with a multiple of {BLOCK} columns; "
            f"{name} is {' x '.join(map(str, dims)) or 'a scalar'}.",
            why=f"{BLOCK} neighbouring values of a row share one scale",
            fix="put the layer on the keep list (keep=[...], --keep NAME)",
        )


def from_blocks(like_RC: Tensor, packed_NH: Tensor, scale_N: Tensor, scale: Tensor) -> Nvfp4Matrix:
    rows, cols = like_RC.shape
    return Nvfp4Matrix(packed_NH.view(rows, cols // 2), scale_N.view(rows, cols // BLOCK), scale)


def _scale(recipe: Recipe, tensor_scale: Tensor | None, amax: Tensor | None) -> Tensor:
    """The recipe's own scale: for a given multiplier, or for the largest magnitude."""
    if tensor_scale is not None:
        return recipe.multiplier(tensor_scale)
    assert amax is not None, "one of the two is given"
    largest = amax.amax().float()
    return torch.where(largest > 0, recipe.scale(largest), 1.0)


def _unit(block_scale_N: Tensor, tensor_scale: Tensor) -> Tensor:
    return block_scale_N.float() * tensor_scale


@functools.cache
def _encoder(recipe: Recipe) -> Callable[..., Tensor]:
    """One function per recipe, so that each is compiled once."""

    def encode(value_NK: Tensor, block_scale_N: Tensor, scale: Tensor) -> Tensor:
        return blocks.encode(recipe.ratio(value_NK, block_scale_N, scale))

    return encode


@functools.cache
def _faker(recipe: Recipe) -> Callable[..., Tensor]:
    def fake(
        value_NK: Tensor, block_scale_N: Tensor, scale: Tensor, multiplier: Tensor, out_NK: Tensor
    ) -> Tensor:
        ratio_NK = recipe.ratio(value_NK, block_scale_N, scale)
        level_NK = blocks.nearest_level(ratio_NK.abs().clamp(max=blocks.E2M1_MAX))
        unit_N1 = (block_scale_N * multiplier).unsqueeze(-1)
        return out_NK.copy_(torch.copysign(level_NK * unit_N1, ratio_NK))

    return fake
