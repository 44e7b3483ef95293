"""The master weight: what an update is added to, and how what does not fit is not lost.

An Adam step is about as large as the learning rate. Half the distance between neighbouring bf16
numbers near 0.02 is 6e-5: at lr 1e-5, rounded to nearest, no such weight ever moves. Hence

| master | bytes | how a small step survives                                              |
|--------|-------|------------------------------------------------------------------------|
| bf16   | 2     | stochastic rounding: up or down with odds that make the mean exact      |
| bf16+8 | 3     | an int8 residual in 1/127 of half a bf16 step: a 24-bit weight          |
| fp32   | 4     | it fits                                                                |
| nvfp4  | 0.56  | stochastic rounding to the 4-bit codes themselves (``packed.py``)       |

bf16 keeps the top 16 bits of a float32: adding a uniform 16-bit number and dropping the low half
carries into the top half exactly as often as it should. All rounding is integer arithmetic on
the bits, because a compiler may drop a round trip through bf16.
"""

from typing import Literal

import torch
from torch import Tensor

MasterFormat = Literal["bf16", "bf16+8", "fp32", "nvfp4"]
MASTERS: tuple[MasterFormat, ...] = ("bf16", "bf16+8", "fp32", "nvfp4")
_TOP_HALF = -0x10000
_TINY = 2.0**-118  # below it half a bf16 step would leave float32


def round_stochastic(value: Tensor, bits: Tensor) -> Tensor:
    """Float32 values that bf16 can hold, right on average; ``bits`` are random. Finite in."""
    carried = (value.view(torch.int32) + (bits & 0xFFFF)) & _TOP_HALF
    return carried.view(torch.float32)


def round_nearest(value: Tensor) -> Tensor:
    """Float32 values that bf16 can hold, ties to even."""
    raw = value.view(torch.int32)
    carried = (raw + 0x7FFF + ((raw >> 16) & 1)) & _TOP_HALF
    return carried.view(torch.float32)


def half_step(near: Tensor) -> Tensor:
    """Half the distance between bf16 neighbours, at bf16 values given as float32."""
    power = (near.view(torch.int32) & 0x7F800000).view(torch.float32)
    return power.clamp(min=_TINY) * 2.0**-8


def join(near: Tensor, residual: Tensor) -> Tensor:
    """The 24-bit weight, as float32, of a bf16 value and its residual."""
    return near + residual.to(torch.float32) * (half_step(near) * (1.0 / 127.0))


def split(value: Tensor, bits: Tensor) -> tuple[Tensor, Tensor]:
    """A bf16 value (as float32) and a residual code (as float32), right on average."""
    near = round_nearest(value)
    share = (value - near) / half_step(near) * 127.0
    noise = (bits & 0xFFFF).to(torch.float32) * 2.0**-16
    return near, (share + noise).floor().clamp(-127.0, 127.0)
