"""An embedding whose gradient costs no second matrix where the head is the same weight.

In a tied model the weight gets two gradients: a dense one from the head, early in the backward
pass, and one from the lookup, at its end, which has a few hundred rows that are not zero and is
just as large (0.7 GiB for Qwen3-4B), as is their sum. Here whoever makes the first offers it, and
the lookup adds its rows to it. Without an offer it makes a dense gradient, as torch does.

Rows are summed in float32 and rounded once.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import TensorWeakRef, WeakTensorKeyDictionary

# weight -> a gradient on its way to it. Held weakly: where no lookup takes it, it is not kept, and
# where autograd has added it to another, it is gone, and adding to it would be adding to nothing.
_offered = WeakTensorKeyDictionary()


def offer_gradient(weight: Tensor, grad: Tensor | None) -> None:
    """Let a lookup of this weight, later in this backward pass, add to a gradient in place."""
    if grad is not None:
        _offered[weight] = TensorWeakRef(grad)


class Lookup(nn.Embedding):
    """Takes the place of an ``nn.Embedding`` and keeps its parameter.

    Rows are given in ``dtype``, so that their gradients are not rounded one by one.
    """

    dtype: torch.dtype | None = None  # the weight's

    def __init__(self, embedding: nn.Embedding) -> None:
        nn.Module.__init__(self)
        self.num_embeddings, self.embedding_dim = embedding.weight.shape
        self.padding_idx, self.weight = embedding.padding_idx, embedding.weight
        self.max_norm, self.norm_type = None, 2.0
        self.scale_grad_by_freq = self.sparse = False
        self.train(embedding.training)

    def forward(self, input: Tensor) -> Tensor:
        return _Rows.apply(input, self.weight, self.padding_idx, self.dtype)  # type: ignore[no-untyped-call,no-any-return]


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, token: Tensor, weight: Tensor, padding: int | None, dtype: torch.dtype | None
    ) -> Tensor:
        ctx.save_for_backward(token)
        ctx.weight, ctx.padding = weight, padding
        return weight.detach()[token].to(dtype or weight.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor | None, None, None]:
        (token,) = ctx.saved_tensors
        reference = _offered.pop(ctx.weight, None)
        offered = None if reference is None else reference()
        flat, rows = token.reshape(-1), grad.reshape(-1, grad.shape[-1]).float()
        if ctx.padding is not None:  # as torch has it: the padding row is never trained by lookup
            rows = rows * (flat != ctx.padding).unsqueeze(-1)
        index, place = flat.unique(return_inverse=True)
        total = rows.new_zeros(len(index), rows.shape[1]).index_add_(0, place, rows)
        if offered is not None:
            offered[index] = (offered[index].float() + total).to(offered.dtype)
            return None, None, None, None
        dense = torch.zeros_like(ctx.weight, dtype=ctx.weight.grad_dtype)
        dense[index] = total.to(dense.dtype)
        return None, dense, None, None
