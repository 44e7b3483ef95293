"""Shard a prepared model with FSDP2: matrices by rows, vectors copied, codes on the wire.

Every block is gathered as one, when it computes, and let go of when it is done; the embedding, the
final norm and the head belong to the root and stay gathered for the length of a step. Gradients are
summed in float32 (not averaged: the loss is divided by the whole step's targets already).

Vectors (norms, biases) are one part in ten thousand of a model. FSDP2 would cut them anywhere, in
the middle of a block of packed moments too; they are kept whole on every rank, by FSDP2's own means
(a mesh of N copies by 1 shard), and every rank makes the same update.

Each rank's gradients have the compute dtype and are rounded to the master's only after they were
summed. In a block that follows from its weights, which are gathered for the compute dtype. The
embedding and the head are gathered in the master's, which is half as much, and have their
``grad_dtype`` set.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import (
    FSDPModule,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.fsdp._fully_shard._fsdp_common import HSDPMeshInfo, ShardPlacementResult

from fourge.core.errors import ConfigError
from fourge.model.swap import nvfp4_layers, scale_groups_of
from fourge.nvfp4.packed import PackedWeight
from fourge.shard.codes import RowCodes, SharedScales
from fourge.shard.part import local_of, rows_of
from fourge.shard.ranks import Ranks
from fourge.train.loss import Loss
from fourge.train.step import batch_loss

Place = Callable[[nn.Parameter], ShardPlacementResult | None]
_METHOD = "loss_of_batch"


@dataclass(frozen=True, slots=True)
class Sharded:
    """A sharded model, and what its forward pass needs beside it."""

    model: Any
    scales: SharedScales
    codes: dict[str, RowCodes]  # by the layer's name

    def loss(self, model: Any, *args: Any, **settings: Any) -> Loss:
        """``batch_loss`` of this rank's rows, with every weight gathered where it is needed."""
        self.scales.refresh()
        loss: Loss = getattr(self.model, _METHOD)(*args, **settings)
        return loss

    def code_samples(self, model: Any) -> list[Tensor]:
        """Some rows of the codes that this rank gave for the last forward pass."""
        return [codes.sample for codes in self.codes.values()]

    @property
    def sent(self) -> int:
        """Bytes of codes and scales that this rank gave to be gathered so far."""
        return sum(codes.sent for codes in self.codes.values())


def shard_(model: Any, ranks: Ranks, *, compute: torch.dtype) -> Sharded:
    """Shard in place. Every rank holds the same whole model before, and its part of it after.

    Raises:
        ConfigError: the model is in a form that cannot be sharded.
    """
    _refuse(model, ranks.size)
    layers = nvfp4_layers(model)
    groups = scale_groups_of(model)
    parts = {name: RowCodes(layer, rows_of(layer.weight.shape[0], ranks.rank, ranks.size))
             for name, layer in layers.items()}  # fmt: skip
    place = _placing(ranks)
    inside = MixedPrecisionPolicy(
        param_dtype=compute if layers else None, reduce_dtype=torch.float32,
        cast_forward_inputs=False,
    )  # fmt: skip
    for block in (*model.base_model.layers, model.base_model.norm):
        fully_shard(block, mesh=ranks.rows, shard_placement_fn=place, mp_policy=inside)
    ends = MixedPrecisionPolicy(reduce_dtype=torch.float32, cast_forward_inputs=False)
    fully_shard(model, mesh=ranks.rows, shard_placement_fn=place, mp_policy=ends)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    for name, layer in layers.items():
        for each in layer.group.members:
            each.drop_codes()
        parts[name].attach(local_of(layer.weight))
    setattr(model, _METHOD, partial(_loss, model, compute))
    register_fsdp_forward_method(model, _METHOD)
    by_layer = {id(layer): parts[name] for name, layer in layers.items()}
    members = [(group, [by_layer[id(layer)] for layer in group.members]) for group in groups]
    return Sharded(model, SharedScales(members, ranks), parts)


def _loss(model: Any, compute: torch.dtype, *args: Any, **settings: Any) -> Loss:
    for end in (model.get_input_embeddings(), model.get_output_embeddings()):
        if type(end.weight) is nn.Parameter:  # gathered codes have the compute dtype already
            end.weight.grad_dtype = compute
    return batch_loss(model, *args, **settings)


def _placing(ranks: Ranks) -> Place:
    copied = HSDPMeshInfo(ranks.copies, shard_mesh_dim=1, replicate_mesh_dim=0)

    def place(param: nn.Parameter) -> ShardPlacementResult | None:
        return ShardPlacementResult(None, copied) if param.dim() < 2 else None

    return place


def _refuse(model: Any, size: int) -> None:
    for name, param in model.named_parameters():
        if param.dim() > 1 and rows_of(param.shape[0], size - 1, size).start >= param.shape[0]:
            raise ConfigError(
                f"{name} has {param.shape[0]} rows, too few for {size} processes.",
                why="a row belongs to one of them, and each must have some",
                fix="use fewer processes",
            )
    if any(isinstance(param, PackedWeight) for param in model.parameters()):
        raise ConfigError(
            "A run on several processes cannot have optim.master nvfp4.",
            why="FSDP2 shards parameters that have memory, and a packed weight has none",
            fix="use optim.master bf16, or one process",
        )
    head = model.get_output_embeddings()
    tied = head.weight is model.get_input_embeddings().weight
    if tied and "lm_head" in nvfp4_layers(model):
        raise ConfigError(
            "A run on several processes cannot quantise a head that is the embedding.",
            why="one gathered weight would have to be codes and rows at once",
            fix="put lm_head on model.keep_bf16",
        )
