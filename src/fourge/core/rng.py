"""Random bits as a pure function of (seed, step, tensor, element): no state, no order.

Stochastic rounding needs noise that does not depend on how the work is cut. Every element's
32 bits are a hash of its own index and of a key made from the rest:

    bits = mix(mix(low(index) ^ key.first) + high(index) * odd ^ key.second)

where ``mix`` is the xor-shift-multiply finaliser known as lowbias32 (two 32-bit multiplies).
The same numbers come out whatever the chunking, the thread count or the sharding, and a resumed
run continues with the numbers it would have had. All of it is int32 arithmetic that wraps,
which every backend vectorises. Not for cryptography.
"""

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Key:
    """Two 32-bit words, as signed integers, that select one stream of bits."""

    first: int
    second: int

    def words(self, device: torch.device) -> Tensor:
        """The key as an int32 tensor: a kernel compiled once serves every key."""
        return torch.tensor([self.first, self.second], dtype=torch.int32, device=device)


def key(seed: int, step: int, tensor: str) -> Key:
    """The key of one tensor at one step. Any integers and any name are good."""
    text = f"{seed}/{step}/{tensor}".encode()
    raw = hashlib.blake2b(text, digest_size=8).digest()
    return Key(
        int.from_bytes(raw[:4], "little", signed=True),
        int.from_bytes(raw[4:], "little", signed=True),
    )


def element_bits(words: Tensor, index: Tensor) -> Tensor:
    """32 random bits, as int32, for each int64 element index."""
    low = (index & 0xFFFFFFFF).to(torch.int32)
    high = (index >> 32).to(torch.int32)
    return mix(mix(low ^ words[0]) + high * 0x2545F491 ^ words[1])


def block_bits(words: Tensor, start_N: Tensor, width: int) -> Tensor:
    """32 random bits, as int32, for each of ``width`` elements from each int64 start.

    The same as ``element_bits`` of ``start + 0, 1, ...``, unless a block crosses a multiple of
    2**32; 64-bit arithmetic is done once per block and not per element.
    """
    low_N1 = (start_N & 0xFFFFFFFF).to(torch.int32).unsqueeze(-1)
    high_N1 = (start_N >> 32).to(torch.int32).unsqueeze(-1)
    low_NK = low_N1 + torch.arange(width, dtype=torch.int32, device=start_N.device)
    return mix(mix(low_NK ^ words[0]) + high_N1 * 0x2545F491 ^ words[1])


def mix(bits: Tensor) -> Tensor:
    """Spread every input bit over the whole int32 word. A bijection."""
    bits = bits ^ _shift_right(bits, 16)
    bits = bits * 0x7FEB352D
    bits = bits ^ _shift_right(bits, 15)
    bits = bits * (0x846CA68B - (1 << 32))
    return bits ^ _shift_right(bits, 16)


def uniform(bits: Tensor) -> Tensor:
    """Float32 in [0, 1), a multiple of 2**-24, from the top 24 bits."""
    return _shift_right(bits, 8).to(torch.float32) * 2.0**-24


def _shift_right(bits: Tensor, count: int) -> Tensor:
    """Logical shift: torch shifts int32 arithmetically, so the copied sign bits are cut off."""
    return (bits >> count) & (0xFFFFFFFF >> count)
