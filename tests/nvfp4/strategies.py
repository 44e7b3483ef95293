"""Weights for the property tests: odd shapes, extreme sizes, zero blocks, ties."""

import torch
from hypothesis import strategies as st
from torch import Tensor


@st.composite
def weights(draw: st.DrawFn) -> Tensor:
    rows = draw(st.integers(1, 5))
    cols = 16 * draw(st.integers(1, 5))
    seed = draw(st.integers(0, 2**32 - 1))
    std = draw(st.sampled_from([1e-6, 1e-3, 0.02, 1.0, 1e4]))
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, cols, generator=generator) * std
    shape = draw(st.sampled_from(["plain", "heavy", "sparse", "zero block", "grid"]))
    if shape == "heavy":
        weight = weight * torch.randn(rows, cols, generator=generator).exp()
    if shape == "sparse":
        weight = weight * (torch.rand(rows, cols, generator=generator) < 0.1)
    if shape == "zero block":
        weight[:, :16] = 0
    if shape == "grid":  # multiples of a quarter: full of ties
        weight = torch.round(weight / std * 4) / 4
    return weight
