"""Adam's moments in 8 or 4 bits, without a zero that could be divided by.

What an update needs is ``m / sqrt(v)``. Store ``m`` and ``v`` apart, each on a linear grid, and
a small ``v`` rounds to zero beside a large neighbour while its ``m`` does not: the next update is
divided by nothing. Here

* ``v`` is stored as its **logarithm**. The bits of a positive float32, read as an integer, are a
  piecewise linear log2 (exponent above, mantissa below): no ``exp``, no ``log``. They are
  quantised linearly between the block's smallest and largest. Code 0 is kept for an exact zero,
  so a positive ``v`` decodes to a positive ``v``, whatever its block. A block spans at most
  ``OCTAVES``; what is smaller is raised to its lower end, which damps, never explodes.
* ``m`` is stored as the **ratio** ``m / sqrt(v)``, which Cauchy-Schwarz bounds:

      |m| / sqrt(v) <= (1 - beta1) / sqrt((1 - beta2) (1 - beta1^2 / beta2))     ("reach")

  A signed code ``c`` stands for ``reach * (c / top)^2``: finer near zero. With 4 bits the reach
  is that of the block, so its largest ratio is exact.

Both are rounded **stochastically**: to nearest, an average whose step is smaller than half a
code would never move again, and a moment would not decay. The noise is a pure function of
(seed, step, tensor, element), so nothing depends on how the work is cut.

| format | block | bytes per weight                                      |
|--------|-------|-------------------------------------------------------|
| fp32   | -     | 8                                                     |
| int8   | 256   | 1 + 1 + 8/256 = 2.031 (lower end and step, per block) |
| nvfp4  | 128   | 1/2 + 1/2 + 12/128 = 1.094 (and the block's reach)    |

A block lies within a row. A tensor whose rows do not divide into blocks, or that is small, keeps
float32 moments (``format_for``).

Shapes: N blocks of K values.
"""

from math import prod, sqrt
from typing import Literal

import torch
from torch import Tensor

from fourge.core.errors import ConfigError

MomentFormat = Literal["fp32", "int8", "nvfp4"]
FORMATS: tuple[MomentFormat, ...] = ("fp32", "int8", "nvfp4")
BLOCK: dict[MomentFormat, int] = {"fp32": 256, "int8": 256, "nvfp4": 128}  # at most
SMALL = 4096  # elements; below, a packed moment would save nothing that shows
NARROW = 32  # a shorter block would spend its savings on its own scales
OCTAVES = 46  # 32 nats: one code of 254 is then at most 13 % of v, 6 % of its root

State = dict[str, Tensor]


def rows_and_columns(shape: tuple[int, ...]) -> tuple[int, int]:
    """A tensor as a matrix: a vector is one row, trailing axes are one."""
    return (1, prod(shape)) if len(shape) < 2 else (shape[0], prod(shape[1:]))


def format_for(shape: tuple[int, ...], wanted: MomentFormat) -> MomentFormat:
    """The format that a tensor of this shape really gets."""
    columns = rows_and_columns(shape)[1]
    if wanted == "fp32" or prod(shape) < SMALL or not _divisor(columns, wanted):
        return "fp32"
    return wanted


def block_for(shape: tuple[int, ...], form: MomentFormat) -> int:
    """Values per block, of a tensor whose moments have this format: a divisor of its rows."""
    columns = rows_and_columns(shape)[1]
    return _divisor(columns, form) or columns


def _divisor(columns: int, form: MomentFormat) -> int:
    """The largest even divisor that makes a block, or 0."""
    for width in range(BLOCK[form], NARROW - 1, -2):
        if columns % width == 0:
            return width
    return 0


def nbytes_for(shape: tuple[int, ...], wanted: MomentFormat) -> int:
    """Exact size of both moments of a tensor. The planner and the allocator both ask here."""
    form, count = format_for(shape, wanted), prod(shape)
    if form == "fp32":
        return 8 * count
    blocks = count // block_for(shape, form)
    return 2 * count + 8 * blocks if form == "int8" else count + 12 * blocks


def new_moments(
    shape: tuple[int, ...], wanted: MomentFormat, device: torch.device, *, count: int | None = None
) -> State:
    """Moments that are zero: of a whole tensor, or of ``count`` values in some rows of it."""
    form = format_for(shape, wanted)
    K = block_for(shape, form)
    N = (prod(shape) if count is None else count) // K

    def zeros(dtype: torch.dtype, *sizes: int) -> Tensor:
        return torch.zeros(sizes, dtype=dtype, device=device)

    if form == "fp32":
        return {"m": zeros(torch.float32, N, K), "v": zeros(torch.float32, N, K)}
    scales = {"v_low": zeros(torch.int32, N), "v_step": zeros(torch.float32, N)}
    if form == "int8":
        return {"m": zeros(torch.int8, N, K), "v": zeros(torch.uint8, N, K), **scales}
    half = K // 2
    packed = {"m": zeros(torch.uint8, N, half), "v": zeros(torch.uint8, N, half)}
    return {**packed, **scales, "m_reach": zeros(torch.float32, N)}


def reach_of(beta1: float, beta2: float) -> float:
    """The largest |m| / sqrt(v) that any gradients can produce.

    Raises:
        ConfigError: there is none, because m remembers longer than v.
    """
    if beta1 * beta1 >= beta2:
        raise ConfigError(
            f"Packed moments need beta1^2 < beta2; these are {beta1} and {beta2}.",
            why="otherwise m / sqrt(v) has no bound, and no code can hold it",
            fix="raise beta2, or use moments fp32",
        )
    return (1 - beta1) / sqrt((1 - beta2) * (1 - beta1 * beta1 / beta2))


def decode_v(code_NK: Tensor, low_N: Tensor, step_N: Tensor) -> Tensor:
    """The second moment; code 0 is zero, and no other code is."""
    place_NK = code_NK.to(torch.float32)
    offset_NK = ((place_NK - 1.0) * step_N.unsqueeze(-1)).to(torch.int32)
    value_NK = (low_N.unsqueeze(-1) + offset_NK).view(torch.float32)
    return torch.where(place_NK > 0, value_NK, 0.0)


def encode_v(v_NK: Tensor, noise_NK: Tensor, top_code: int) -> tuple[Tensor, Tensor, Tensor]:
    """Codes (as float32), lower end and step of each block; ``noise`` is uniform in [0, 1)."""
    high_N = v_NK.amax(-1).view(torch.int32)
    low_N = torch.where(v_NK > 0, v_NK, torch.inf).amin(-1).view(torch.int32)
    low_N = torch.maximum(torch.minimum(low_N, high_N), high_N - (OCTAVES << 23))
    span_N = (high_N - low_N).to(torch.float32)
    intervals = float(top_code - 1)
    per_code_N = torch.where(span_N > 0, intervals / span_N, 0.0)
    above_NK = (v_NK.view(torch.int32) - low_N.unsqueeze(-1)).clamp(min=0).to(torch.float32)
    place_NK = (above_NK * per_code_N.unsqueeze(-1) + noise_NK).floor().clamp(max=intervals) + 1.0
    return torch.where(v_NK > 0, place_NK, 0.0), low_N, span_N * (1.0 / intervals)


def root(value: Tensor) -> Tensor:
    """The square root, correctly rounded.

    Compiled code uses the processor's instruction, which is. Uncompiled, torch hands large
    tensors to a library whose last bit may differ; by way of float64 it cannot.
    """
    if torch.compiler.is_compiling():
        return value.sqrt()
    return value.double().sqrt().to(torch.float32)


def decode_ratio(signed_NK: Tensor, unit: Tensor) -> Tensor:
    """``m / sqrt(v)`` of a signed code, as float32; ``unit`` is the ratio of code 1."""
    return signed_NK * signed_NK.abs() * unit


def encode_ratio(share_NK: Tensor, noise_NK: Tensor, top_code: int) -> Tensor:
    """The magnitude of the code whose square is ``share`` on average; exact at the top."""
    below_NK = root(share_NK).floor()
    goes_up_NK = noise_NK * (2.0 * below_NK + 1.0) < share_NK - below_NK * below_NK
    return torch.where(goes_up_NK, below_NK + 1.0, below_NK).clamp(max=float(top_code))


def pack_halves(code_NK: Tensor) -> Tensor:
    """Two 4-bit codes per byte: the first half of a block below, the second above."""
    half = code_NK.shape[1] // 2
    return code_NK[:, :half] | (code_NK[:, half:] << 4)


def unpack_halves(packed_NH: Tensor) -> Tensor:
    """Codes, 0 to 15, in the order ``pack_halves`` took them."""
    return torch.cat([packed_NH & 0xF, packed_NH >> 4], dim=1)
