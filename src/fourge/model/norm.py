"""RMS norm with a backward pass of its own.

Transformers writes it as seven operations, and autograd takes them back one by one: with bf16 on a
CPU that is ten times the work of the forward pass, and two float32 copies of the input are kept for
it. Here the input itself is kept, and one number for each token; a kernel (``norm.cpp``) does the
rest where it can, and a few operations in float32 elsewhere.

The forward pass is the same operations in the same order, so that no bit differs. Norms that do
something else (Gemma adds one to the weight, some round after it) are left as they are.

Shapes: T tokens, in any number of dimensions; H values of a token.
"""

import ctypes
import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fourge.model.lanes import has_lanes, kernel_for, kernels_beside
from fourge.nvfp4.built import threads_for

_CHUNK = 64  # rows, as in the kernel
_WIDTH, _ROWS = 32, 16  # of the values by which a norm is recognised


class LeanRMSNorm(nn.Module):
    """Takes the place of a norm as Llama and Qwen have it."""

    weight: nn.Parameter
    variance_epsilon: float

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = _Norm.apply(x, self.weight, self.variance_epsilon)  # type: ignore[no-untyped-call]
        return y


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_TH: Tensor, weight_H: Tensor, epsilon: float) -> Tensor:
        wide_TH = x_TH.float()
        per_size_T1 = torch.rsqrt(wide_TH.pow(2).mean(-1, keepdim=True) + epsilon)
        ctx.save_for_backward(x_TH, weight_H, per_size_T1)
        return weight_H * (wide_TH * per_size_T1).to(x_TH.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given_TH: Tensor) -> tuple[Tensor | None, ...]:
        x_TH, weight_H, per_size_T1 = ctx.saved_tensors
        # Squares that overflowed made all of the row zero; a gradient of zero would hide it.
        per_size_T1 = per_size_T1.masked_fill(per_size_T1 == 0, torch.nan)
        has_kernel = has_lanes(x_TH) and given_TH.dtype == x_TH.dtype and _kernels() is not None
        back = _back_by_kernel if has_kernel else _back
        grad_TH, grad_H = back(x_TH, weight_H.float(), per_size_T1, given_TH)
        return grad_TH, grad_H.to(weight_H.dtype) if ctx.needs_input_grad[1] else None, None


def _back(
    x_TH: Tensor, weight_H: Tensor, per_size_T1: Tensor, given_TH: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of input and weight."""
    unit_TH, given_TH = x_TH.float() * per_size_T1, given_TH.float()
    grad_H = (given_TH * unit_TH).flatten(0, -2).sum(0)
    grad_TH = given_TH * weight_H
    along_T1 = (grad_TH * unit_TH).mean(-1, keepdim=True)
    grad_TH.addcmul_(unit_TH, along_T1, value=-1).mul_(per_size_T1)
    return grad_TH.to(x_TH.dtype), grad_H


def _back_by_kernel(
    x_TH: Tensor, weight_H: Tensor, per_size_T1: Tensor, given_TH: Tensor
) -> tuple[Tensor, Tensor]:
    """The same, in one pass."""
    rows, width = per_size_T1.numel(), len(weight_H)
    grad_TH = torch.empty_like(x_TH, memory_format=torch.contiguous_format)
    sums_CH = weight_H.new_empty(-(-rows // _CHUNK), width)
    tensors = (x_TH.contiguous(), given_TH.contiguous(), weight_H, per_size_T1, grad_TH, sums_CH)
    sizes = (ctypes.c_int64 * 2)(rows, width)
    kernel = kernel_for(_kernels(), "back", x_TH.dtype)
    kernel(*(each.data_ptr() for each in tensors), sizes, 1 / width, threads_for(x_TH.numel()))
    return grad_TH, sums_CH.sum(0)


@functools.cache
def _kernels() -> ctypes.CDLL | None:
    return kernels_beside(__file__, back=7)


def lean_norms_(model: nn.Module) -> None:
    """Have every norm that is one of these go back by itself."""
    for module in model.modules():
        kind: Any = type(module)
        if is_plain(kind):
            module.__class__ = LeanRMSNorm


@functools.cache
def is_plain(kind: Any) -> bool:
    """Whether modules of this class compute what ``LeanRMSNorm`` does, bit for bit: it is tried."""
    if not kind.__name__.endswith("RMSNorm"):
        return False
    numbers = torch.Generator().manual_seed(0)
    x = torch.randn(_ROWS, _WIDTH, generator=numbers).bfloat16()
    try:
        made = kind(_WIDTH, eps=1e-5).bfloat16()
        epsilon = made.variance_epsilon
        made.weight.data.copy_(torch.randn(_WIDTH, generator=numbers))
    except (AttributeError, TypeError):  # another kind of norm, or none
        return False
    with torch.no_grad():
        return torch.equal(made(x), _Norm.apply(x, made.weight, epsilon))  # type: ignore[no-untyped-call]
