"""One step: a batch goes through the model, its loss is taken where it has targets.

The hidden states after the final norm are gathered at the target positions only, so the head, by
far the widest matrix, sees nothing that is not learned from.
"""

from math import isfinite
from typing import Any

import torch
from torch import Tensor

from fourge.core.errors import DivergedError
from fourge.core.process import trim_heap
from fourge.data.batch import MASKED, Batch
from fourge.model.attention import SightMask, attend_by_sight_
from fourge.model.mixed import activation_dtype
from fourge.train.joined import can_join, joined
from fourge.train.loss import Loss, Teacher, Weights, head_loss


def batch_loss(
    model: Any,
    batch: Batch,
    weights: Weights,
    *,
    teacher: Teacher | None = None,
    chunk: int | None = None,
    backward_twice: bool = False,
) -> Loss:
    """The loss of a batch; a teacher has one row per target, in the order of the positions."""
    hidden_TH = target_states(model, batch)
    target_T = batch.target_BT[batch.target_BT != MASKED].to(hidden_TH.device)
    if teacher is not None:
        teacher = teacher.to(hidden_TH.device)
        target_T = target_T.masked_fill(teacher.has_T, MASKED)
    if hidden_TH.device.type == "cpu":
        # The blocks leave holes in the C library's heap, and the head needs the most memory of
        # all: they are given back first (12 % of the peak with 1,024 tokens, measured).
        trim_heap()
    return head_loss(
        hidden_TH, model.get_output_embeddings(), target_T, weights,
        teacher=teacher, chunk=chunk, backward_twice=backward_twice,
    )  # fmt: skip


def target_states(model: Any, batch: Batch) -> Tensor:
    """The hidden states, after the final norm, of the positions that have a target."""
    device = model.get_input_embeddings().weight.device
    together = joined(batch) if can_join(model, batch.token_BT.shape[1]) else None
    if together is not None:
        # For good: a backward pass that computes blocks again has to attend in the same way.
        attend_by_sight_(model)
        output = model.base_model(
            input_ids=together.token_S[None].to(device),
            position_ids=together.position_S[None].to(device),
            attention_mask=SightMask.of(together.runs(_attention_dtype(model, device), device)),
            use_cache=False,
        )
        states_SH: Tensor = output.last_hidden_state[0]
        return states_SH[together.target_at_N.to(device)]
    whole = bool(batch.mask_BT.all())  # no padding: attention is plainly causal, and faster
    output = model.base_model(
        input_ids=batch.token_BT.to(device),
        attention_mask=None if whole else batch.mask_BT.to(device),
        use_cache=False,
    )
    hidden_BTH: Tensor = output.last_hidden_state
    return hidden_BTH[(batch.target_BT != MASKED).to(device)]


def _attention_dtype(model: Any, device: torch.device) -> torch.dtype:
    """On a CPU the backward pass of short runs takes three times as long in bf16."""
    return torch.float32 if device.type == "cpu" else activation_dtype(model)


def require_finite_loss(loss: float, step: int, source: str, lr: float) -> None:
    """Raise before the backward pass, while the weights are those of the last good step."""
    if not isfinite(loss):
        raise DivergedError(
            f"The loss is {loss} at step {step}.",
            why=f"the batch is {source}, the learning rate {lr:g}; no weight was changed",
            fix="begin another run, with another out and a lower optim.lr",
        )
