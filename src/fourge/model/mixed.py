"""Weights stored in one dtype, computed with in another.

A bf16 master is multiplied in float32 on a CPU that has no products of bf16. NVFP4 layers decode
into whatever dtype the activations have. What remains is the embedding, whose output decides
the dtype of everything after it; norms, whose weights must not widen it again; and linear layers
that are not quantised, which convert their weight for the length of one product and keep no copy
for the backward pass.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from fourge.model.lookup import Lookup
from fourge.nvfp4 import native
from fourge.nvfp4.kept import product


class MixedLinear(nn.Linear):
    """Takes the place of an ``nn.Linear``; computes in the dtype of its input.

    A head, the largest weight of a small model, multiplies a few rows without converting itself.
    """

    def __init__(self, linear: nn.Linear, *, is_head: bool = False) -> None:
        nn.Module.__init__(self)
        self.is_head = is_head
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.train(linear.training)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, self.in_features)
        if self.is_head and native.takes_dense(flat, self.weight):
            y = native.times_dense(flat, self.weight, self.bias)
        else:
            y = _Multiply.apply(flat, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return y.view(*x.shape[:-1], self.out_features)


class MixedLayerNorm(nn.LayerNorm):
    """Takes the place of an ``nn.LayerNorm``, which wants one dtype for everything."""

    def forward(self, input: Tensor) -> Tensor:
        weight, bias = (None if p is None else p.to(input.dtype) for p in (self.weight, self.bias))
        return functional.layer_norm(input, self.normalized_shape, weight, bias, self.eps)


class _Multiply(torch.autograd.Function):
    """``x @ weight.T + bias`` in the dtype of ``x``; the converted weight is not kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.bias_dtype = None if bias is None else bias.dtype
        bias = None if bias is None else bias.to(x.dtype)
        return product(lambda: functional.linear(x, weight.to(x.dtype), bias))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad_x = grad_y @ weight.to(x.dtype) if ctx.needs_input_grad[0] else None
        grad_w = (grad_y.T @ x).to(weight.dtype) if ctx.needs_input_grad[1] else None
        grad_b = grad_y.sum(0).to(ctx.bias_dtype) if ctx.needs_input_grad[2] else None
        return grad_x, grad_w, grad_b


def compute_ends_in_(model: Any, dtype: torch.dtype) -> None:
    """Have the embedding and the head compute in a dtype, whatever they are stored in.

    For models whose other weights are of that dtype, or quantised. An embedding of a kind of its
    own is left alone.
    """
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    if type(embedding) is nn.Embedding:
        embedding = Lookup(embedding)
        embedding.dtype = dtype
        model.set_input_embeddings(embedding)
    if type(head) is nn.Linear:
        model.set_output_embeddings(MixedLinear(head, is_head=True))


def activation_dtype(model: Any) -> torch.dtype:
    """What a model computes in, which is what its embedding gives."""
    embedding = model.get_input_embeddings()
    dtype: torch.dtype = getattr(embedding, "dtype", None) or embedding.weight.dtype
    return dtype


def compute_in_(model: Any, dtype: torch.dtype) -> None:
    """Have a transformers model compute in a dtype, whatever its weights are stored in.

    The last call counts. Layers may be quantised before or after.
    """
    head = model.get_output_embeddings()
    for name, module in list(model.named_modules()):
        if type(module) is nn.Linear:
            parent, _, child = name.rpartition(".")
            mixed = MixedLinear(module, is_head=module is head)
            setattr(model.get_submodule(parent), child, mixed)
        elif type(module) is nn.LayerNorm:
            module.__class__ = MixedLayerNorm
        elif type(module).__name__.endswith("RMSNorm"):
            _give_in_(module, dtype)  # a wider weight would widen all that follows
    embedding = model.get_input_embeddings()
    if type(embedding) is nn.Embedding:
        embedding = Lookup(embedding)
        model.set_input_embeddings(embedding)
    _give_in_(embedding, dtype)


def _give_in_(module: Any, dtype: torch.dtype) -> None:
    module.dtype = dtype
    if not module._forward_hooks:
        module.register_forward_hook(_cast)


def _cast(module: Any, args: Any, output: Tensor) -> Tensor:
    return output.to(module.dtype)
