"""What travels for forward: the 4-bit pack of each rank's rows, and their block scales.

FSDP2 lets a sharded tensor say what is gathered in its stead (``fsdp_pre_all_gather``) and what is
made of the result (``fsdp_post_all_gather``). A row belongs to one rank and a block of 16 to one
row, so every rank quantises its own rows; the one number that needs the others is the tensor scale,
which hangs on the largest weight of all. ``refresh`` asks for it, for every layer in one message,
before each forward pass:

    my rows --amax--> all-reduce MAX --> tensor scale --quantise--> codes, block scales
                      4 bytes a group                               0.5625 bytes a weight, gathered

Codes are made when they are asked for and not kept, so none can be stale: once for forward and once
for backward, of 1/N of the weights. The rows are padded to the same number on every rank, as FSDP2
pads them.
"""

from typing import Any

import torch
from torch import Tensor

from fourge.nvfp4.blocks import BLOCK
from fourge.nvfp4.gathered import GatheredWeight
from fourge.nvfp4.linear import Nvfp4Linear, ScaleGroup
from fourge.nvfp4.matrix import Nvfp4Matrix, amax_of, dequantize, quantize, tensor_scale_of
from fourge.optim.moved import sampled
from fourge.shard.ranks import Ranks


class RowCodes:
    """One layer's weight, of which this rank has some rows."""

    def __init__(self, layer: Nvfp4Linear, rows: slice) -> None:
        self.recipe = layer.group.recipe
        self.shape = (layer.out_features, layer.in_features)
        self.padded = rows.stop - rows.start
        self.loaded = _rows_of(layer.codes(), rows) if layer.loaded else None
        self.scale = torch.empty(0)  # set by ``refresh``
        self.sample = torch.empty(0)  # some rows of the codes that were gathered last
        self.sent = 0  # bytes given to be gathered, in all
        self._local = torch.empty(0)

    def attach(self, local_RC: Tensor) -> None:
        """Have FSDP2 gather codes instead of this tensor, the rows of this rank."""
        self._local = local_RC
        local_RC.fsdp_pre_all_gather = self.before  # type: ignore[attr-defined]
        local_RC.fsdp_post_all_gather = self.after  # type: ignore[attr-defined]

    def amax(self) -> Tensor:
        """The largest magnitude here."""
        return amax_of([self._local])

    def is_written(self) -> bool:
        """Whether the rows are no longer what their loaded codes stand for."""
        if self.loaded is None:
            return True
        return not torch.equal(dequantize(self.loaded, dtype=self._local.dtype), self._local)

    def matrix(self) -> Nvfp4Matrix:
        """The rows in NVFP4."""
        if self.loaded is not None:
            return self.loaded
        return quantize(self._local, recipe=self.recipe, tensor_scale=self.scale)

    def before(self, mesh: Any) -> tuple[tuple[Tensor, Tensor], None]:
        cols, device = self.shape[1], self._local.device
        packed = torch.zeros(self.padded, cols // 2, dtype=torch.uint8, device=device)
        scales = torch.zeros(self.padded, cols // BLOCK, dtype=torch.uint8, device=device)
        matrix, count = self.matrix(), len(self._local)
        packed[:count] = matrix.packed_RC
        scales[:count] = matrix.block_scale_RB.view(torch.uint8)
        self.sample = sampled(matrix.packed_RC).clone()
        self.sent += packed.nbytes + scales.nbytes
        return (packed, scales), None

    def after(
        self, gathered: tuple[Tensor, Tensor], metadata: None, dtype: torch.dtype, *,
        out: GatheredWeight | None = None,
    ) -> tuple[GatheredWeight, tuple[Tensor, ...]] | None:  # fmt: skip
        rows = self.shape[0]
        packed, scales = (part[:rows] for part in gathered)
        matrix = Nvfp4Matrix(packed, scales.view(torch.float8_e4m3fn), self.scale)
        if out is not None:  # its codes lie where these were gathered to
            out.matrix = matrix
            return None
        return GatheredWeight(matrix, dtype), ()


class SharedScales:
    """Every scale group of a model, each with the rows that this rank has of its members."""

    def __init__(self, groups: list[tuple[ScaleGroup, list[RowCodes]]], ranks: Ranks) -> None:
        self._groups, self._ranks = groups, ranks

    @torch.no_grad()
    def refresh(self) -> None:
        """Set every scale for the weights as they are now: one message for all of them."""
        if not self._groups:
            return
        found = []
        for _, members in self._groups:
            found += [torch.stack([member.amax() for member in members]).amax()]
            found += [torch.tensor(float(any(member.is_written() for member in members)))]
        largest = self._ranks.largest_(torch.stack([each.to(found[0].device) for each in found]))
        for index, (group, members) in enumerate(self._groups):
            amax, written = largest[2 * index : 2 * index + 2]
            for member in members:
                _take_(member, tensor_scale_of(amax, recipe=group.recipe), bool(written))


def _take_(member: RowCodes, scale: Tensor, written: bool) -> None:
    if written:
        member.loaded = None
    member.scale = scale if member.loaded is None else member.loaded.tensor_scale


def _rows_of(matrix: Nvfp4Matrix, rows: slice) -> Nvfp4Matrix:
    """A copy of some rows, as many as there are."""
    scales = matrix.block_scale_RB.view(torch.uint8)[rows].clone().view(torch.float8_e4m3fn)
    return Nvfp4Matrix(matrix.packed_RC[rows].clone(), scales, matrix.tensor_scale)
