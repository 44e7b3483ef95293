"""The loss, in chunks of positions, with its gradient, so that full logits never exist.

For T positions and a vocabulary of V = 151,936 the logits alone are 600 KB per position in
float32, and a plain loss holds several copies. Here C positions at a time are multiplied by the
head, scored, differentiated and forgotten; what stays is the gradient of the hidden states and
that of the head. Only positions that have a target come here at all.

Two kinds of positions, each averaged over its own number in the whole step:

* a **target**: cross entropy with the token that should follow;
* a **teacher**: KL(p || q) from the base model's own distribution p, kept as the log-probabilities
  of its top k tokens and one bucket for the rest. With S the top k, and t the rest,

      KL = sum_S p (log p - log q) + p_t (log p_t - log q_t)
      dKL/dlogit = q - p  on S,      q (1 - p_t / q_t)  elsewhere

The head's weight may be stored in bf16: it is converted a slab of rows at a time. Products are in
the dtype of the hidden states, everything after them in float32. The head's gradient is summed
over chunks in float32 if there is more than one chunk, and rounded to the weight's dtype once.

Shapes: T positions, C positions of a chunk, H hidden, V vocabulary, K teacher tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fourge.data.batch import MASKED
from fourge.model.lookup import offer_gradient
from fourge.nvfp4.linear import Nvfp4Linear
from fourge.nvfp4.matrix import dequantize

LOGITS = 128 << 20  # bytes of logits that may exist at once
SLAB = 1 << 24  # elements of the head converted at once
_TINY = 1e-30


@dataclass(frozen=True, slots=True)
class Teacher:
    """The base model's distribution at some positions. A row of zeros in ``has`` has none."""

    token_TK: Tensor  # int64
    log_p_TK: Tensor  # float32
    has_T: Tensor  # bool

    def to(self, device: torch.device) -> "Teacher":
        return Teacher(*(part.to(device) for part in (self.token_TK, self.log_p_TK, self.has_T)))

    def part(self, chunk: slice) -> "Teacher":
        return Teacher(self.token_TK[chunk], self.log_p_TK[chunk], self.has_T[chunk])


@dataclass(frozen=True, slots=True)
class Weights:
    """What one position of each kind counts: one over their number, times their weight."""

    target: float
    teacher: float = 0.0


@dataclass(frozen=True, slots=True)
class Loss:
    """``total`` is differentiable; the sums are for the record."""

    total: Tensor
    target_sum: Tensor  # nats
    teacher_sum: Tensor  # nats


def head_loss(
    hidden_TH: Tensor,
    head: nn.Module,
    target_T: Tensor,
    weights: Weights,
    *,
    teacher: Teacher | None = None,
    chunk: int | None = None,
    backward_twice: bool = False,
) -> Loss:
    """The loss of hidden states after the final norm, under a head without bias.

    ``chunk`` is the number of positions at once; by default that of ``chunk_of``.
    """
    weight: Tensor = head.weight  # type: ignore[assignment]
    itemsize = weight.element_size() if weight.requires_grad else 4  # without a sum, none is saved
    chunk = chunk_of(len(hidden_TH), tuple(weight.shape), itemsize, chunk)
    total, target_sum, teacher_sum = _HeadLoss.apply(  # type: ignore[no-untyped-call]
        hidden_TH, weight, head, target_T, weights, teacher, chunk, backward_twice
    )
    return Loss(total, target_sum, teacher_sum)


def chunk_of(positions: int, shape: tuple[int, ...], itemsize: int, asked: int | None) -> int:
    """Positions at once, for a head of this shape and bytes per weight.

    As many as ``LOGITS`` holds, in chunks of one size; or all, if that needs no more memory: the
    float32 sum of the head's gradient over several chunks is then not needed.
    """
    vocabulary, hidden = shape
    logit_bytes = 4 * vocabulary
    at_once = asked or max(1, LOGITS // logit_bytes)
    more = (positions - at_once) * logit_bytes
    if positions == 0 or (asked is None and more <= vocabulary * hidden * (4 - itemsize)):
        return max(1, positions)
    chunks = -(-positions // at_once)
    return -(-positions // chunks)


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_TH: Tensor,
        weight_VH: Tensor,
        head: nn.Module,
        target_T: Tensor,
        weights: Weights,
        teacher: Teacher | None,
        chunk: int,
        backward_twice: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        wants_hidden, wants_weight = ctx.needs_input_grad[:2]
        several = len(hidden_TH) > chunk
        grad_hidden = torch.empty_like(hidden_TH) if wants_hidden else None
        asked = weight_VH.grad_dtype or weight_VH.dtype
        grad_dtype = torch.float32 if several else asked
        grad_weight = None
        if wants_weight:
            make = torch.zeros if several else torch.empty
            grad_weight = make(weight_VH.shape, dtype=grad_dtype, device=weight_VH.device)
        sums = torch.zeros(3, device=hidden_TH.device)
        dense = dense_head(head)
        for start in range(0, len(hidden_TH), chunk):
            part = slice(start, start + chunk)
            given = None if teacher is None else teacher.part(part)
            logit_VC = logits(hidden_TH[part], dense)
            sums += _score_(logit_VC, target_T[part], given, weights)
            if grad_hidden is not None:
                grad_hidden[part] = _grad_hidden(logit_VC, dense, hidden_TH.dtype)
            if grad_weight is not None:
                _add_grad_weight_(grad_weight, logit_VC, hidden_TH[part], add=several)
            del logit_VC
        ctx.grads = [grad_hidden, None if grad_weight is None else grad_weight.to(asked)]
        ctx.backward_twice, ctx.weight = backward_twice, weight_VH
        total, target_sum, teacher_sum = sums.unbind()
        ctx.mark_non_differentiable(target_sum, teacher_sum)
        return total.clone(), target_sum.clone(), teacher_sum.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        if ctx.grads is None:
            raise RuntimeError("this loss was told to expect one backward pass, and got two")
        grads = ctx.grads
        if grad.item() != 1.0:
            grads = [None if g is None else g * grad.to(g.dtype) for g in grads]
        if not ctx.backward_twice:
            ctx.grads = None
            offer_gradient(ctx.weight, grads[1])
        return (*grads, None, None, None, None, None, None)


def dense_head(head: nn.Module) -> Tensor:
    """The head's weight as forward sees it: decoded where it is NVFP4."""
    if isinstance(head, Nvfp4Linear):
        return dequantize(head.codes())
    weight: Tensor = head.weight.detach()  # type: ignore[operator]
    return weight


def slabs(weight_VH: Tensor) -> Iterator[slice]:
    rows = max(1, SLAB // weight_VH.shape[1])
    return (slice(at, at + rows) for at in range(0, len(weight_VH), rows))


def logits(hidden_CH: Tensor, weight_VH: Tensor) -> Tensor:
    """Of some positions, in float32; the weight is converted a slab at a time."""
    logit_VC = hidden_CH.new_empty(len(weight_VH), len(hidden_CH), dtype=torch.float32)
    for slab in slabs(weight_VH):
        weight = weight_VH[slab].to(hidden_CH.dtype)
        if weight.dtype == torch.float32:
            torch.mm(weight, hidden_CH.T, out=logit_VC[slab])
        else:
            logit_VC[slab] = weight @ hidden_CH.T
        del weight  # before the next slab is made
    return logit_VC


def _score_(
    logit_VC: Tensor, target_C: Tensor, teacher: Teacher | None, weights: Weights
) -> Tensor:
    """Loss and sums of a chunk; the logits become their own gradient, in place."""
    has_C = target_C != MASKED
    safe_C = target_C.clamp(min=0).unsqueeze(0)
    picked_C = logit_VC.gather(0, safe_C).squeeze(0)
    top_KC = None if teacher is None else logit_VC.gather(0, teacher.token_TK.T)
    log_norm_C, per_total_C = _exponentials_(logit_VC)
    nll_C = torch.where(has_C, log_norm_C - picked_C, 0.0)
    scale_C = has_C * weights.target
    if teacher is None or top_KC is None:
        kl_C = torch.zeros_like(nll_C)
        logit_VC.mul_(scale_C * per_total_C)
    else:
        log_q_KC = top_KC - log_norm_C
        kl_C = _divergence_(logit_VC, log_q_KC, per_total_C, scale_C, teacher, weights)
    logit_VC.scatter_add_(0, safe_C, -scale_C.unsqueeze(0))
    total = weights.target * nll_C.sum() + weights.teacher * kl_C.sum()
    return torch.stack([total, nll_C.sum(), kl_C.sum()])


def _exponentials_(logit_VC: Tensor) -> tuple[Tensor, Tensor]:
    """Logits become exponentials, in place; the log of their sum, and one over the sum."""
    largest_C = logit_VC.amax(0)
    total_C = logit_VC.sub_(largest_C).exp_().sum(0)
    return largest_C + total_C.log(), 1 / total_C


def _divergence_(
    exp_VC: Tensor,
    log_q_KC: Tensor,
    per_total_C: Tensor,
    scale_C: Tensor,
    teacher: Teacher,
    weights: Weights,
) -> Tensor:
    """KL to the teacher; exponentials become the gradient, but for the targets' own share."""
    token_KC, log_p_KC = teacher.token_TK.T, teacher.log_p_TK.T.float()
    p_KC, q_KC = log_p_KC.exp(), log_q_KC.exp()
    p_rest_C = (1 - p_KC.sum(0)).clamp(min=0.0)
    # The student's rest is summed: for one that is sure, 1 - sum(q) is nothing but rounding, and
    # it divides.
    exp_VC.scatter_(0, token_KC, torch.where(teacher.has_T, 0.0, exp_VC.gather(0, token_KC)))
    q_rest_C = (exp_VC.sum(0) * per_total_C).clamp(min=_TINY)
    rest_C = torch.where(p_rest_C > 0, p_rest_C * (p_rest_C.clamp(min=_TINY) / q_rest_C).log(), 0.0)
    kl_C = torch.where(teacher.has_T, (p_KC * (log_p_KC - log_q_KC)).sum(0) + rest_C, 0.0)
    taught_C = teacher.has_T * weights.teacher
    exp_VC.mul_((scale_C + taught_C * (1 - p_rest_C / q_rest_C)) * per_total_C)
    grad_KC = torch.where(teacher.has_T, taught_C * (q_KC - p_KC) + scale_C * q_KC, 0.0)
    exp_VC.scatter_add_(0, token_KC, grad_KC)
    return kl_C


def _grad_hidden(grad_VC: Tensor, weight_VH: Tensor, dtype: torch.dtype) -> Tensor:
    total = torch.zeros(grad_VC.shape[1], weight_VH.shape[1], device=grad_VC.device)
    for slab in slabs(weight_VH):
        total += grad_VC[slab].to(dtype).T @ weight_VH[slab].to(dtype)
    return total.to(dtype)


def _add_grad_weight_(grad_VH: Tensor, grad_VC: Tensor, hidden_CH: Tensor, *, add: bool) -> None:
    for slab in slabs(grad_VH):
        product = grad_VC[slab].to(hidden_CH.dtype) @ hidden_CH
        if add:
            grad_VH[slab] += product
        else:
            grad_VH[slab] = product
        del product
