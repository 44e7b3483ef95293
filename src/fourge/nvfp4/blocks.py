"""E2M1, the 4-bit float, on blocks of 16 that share a scale: the arithmetic that defines us.

A code is ``sign << 3 | index`` and stands for a level:

    index   0    1    2    3    4    5    6    7
    level   0   0.5   1   1.5   2    3    4    6

The value of an element is ``level * unit``, where ``unit`` belongs to its block. Rounding is to
the nearest level, ties to the even index, and beyond 6 it saturates.

Each function here is written in operations that every compiler vectorises (no tables, no
branches), because the fast path is these same functions compiled: see ``compiled.py``.

Shapes: N blocks of K = 16 values. Codes are packed two to a byte, the even column in the low
half, so a block is 8 bytes, or two 32-bit words of 8 codes (little-endian).
"""

import torch
from torch import Tensor

BLOCK = 16
E2M1_LEVELS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
E2M1_MAX = E2M1_LEVELS[-1]
E4M3_MAX = 448.0
E4M3_TINY = 2.0**-9  # the smallest positive E4M3 number, a subnormal

_EXPONENT = 0x7F800000  # the exponent field of a float32


def block_amax(value_NK: Tensor) -> Tensor:
    """Largest magnitude of each block, in the dtype of the values."""
    return value_NK.abs().amax(dim=-1)


def round_e4m3(value: Tensor) -> Tensor:
    """Nearest E4M3 number of a float32 in [0, 448], as float32; ties to even."""
    return value.to(torch.float8_e4m3fn).to(torch.float32)


def nearest_level(ratio: Tensor) -> Tensor:
    """Nearest E2M1 level of each magnitude in [0, 6], ties to the even index.

    Levels lie 0.5 apart below 2, then 1, then 2 apart: half the power of two at or below the
    magnitude. Adding 2**22 times that power leaves no bit below one step, so the addition
    itself rounds, to even, and the subtraction restores the size.
    """
    power = (ratio.clamp(min=1.0).view(torch.int32) & _EXPONENT).view(torch.float32)
    anchor = power * 2.0**22
    return (ratio + anchor) - anchor


def encode(ratio: Tensor) -> Tensor:
    """Nearest E2M1 code (uint8, 0 to 15) of each float32; beyond +-6 it saturates."""
    level = nearest_level(ratio.abs().clamp(max=E2M1_MAX))
    return code_of(level, ratio)


def code_of(level: Tensor, signed: Tensor) -> Tensor:
    """Code of each level, with the sign of the float32 ``signed``."""
    # The index is piecewise linear in the level: twice it up to 2, then +1 each to 4, then 7.
    index = (2 * level).clamp(max=4.0) + (level - 2).clamp(0.0, 2.0) + (level * 0.5 - 2).clamp(0, 1)
    sign = (signed.view(torch.int32) >> 28) & 8
    return (index.to(torch.int32) | sign).to(torch.uint8)


def decode(codes: Tensor) -> Tensor:
    """Float32 level of each code, 0 to 15."""
    codes = codes.to(torch.int32)
    index = (codes & 7).to(torch.float32)
    level = 0.5 * (index + (index - 4).clamp(min=0) + 2 * (index - 6).clamp(min=0))
    return torch.where(codes >= 8, -level, level)


def pack(codes: Tensor) -> Tensor:
    """Two codes per byte along the last axis, which must be a multiple of 8 long.

    It takes codes, not floats, so there is no way to pack a value that was never quantised.
    Eight codes are eight bytes, hence one int64, which three shifts fold into four bytes.
    """
    wide = codes.contiguous().view(torch.int64)
    wide = (wide | (wide >> 4)) & 0x00FF00FF00FF00FF
    wide = (wide | (wide >> 8)) & 0x0000FFFF0000FFFF
    return (wide | (wide >> 16)).to(torch.int32).view(torch.uint8)


def unpack(packed: Tensor) -> Tensor:
    """Codes, 0 to 15, in the order ``pack`` took them."""
    return torch.stack([packed & 0xF, packed >> 4], dim=-1).flatten(-2)


def dequantize_words_(words_NW: Tensor, unit_N: Tensor, out_NWE: Tensor) -> Tensor:
    """Decode packed blocks: W = 2 words of E = 8 codes per block, straight into ``out``."""
    shift_E = torch.arange(0, 32, 4, dtype=torch.int32, device=words_NW.device)
    codes_NWE = (words_NW.unsqueeze(-1) >> shift_E) & 15
    return out_NWE.copy_(decode(codes_NWE) * unit_N.unsqueeze(-1).unsqueeze(-1))
