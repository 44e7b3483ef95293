"""Several conversations side by side, as the tensors of one training step.

A model that has read tokens 0..t says what follows, so the targets are shifted here, once, and
nowhere else:

    token     <s>   hi   [/INST]   yes   </s>   pad
    target     -     -     yes     </s>    -     -          - is MASKED
    mask       1     1      1       1      1     0

The stop token is read as the target of the answer's last token; it stands inside the sequence,
so shifting loses nothing. Padding goes to the right, where no real token can see it.

Shapes: B conversations, T tokens of the longest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fourge.core.errors import DataError
from fourge.data.render import Rendered

MASKED = -100  # what cross entropy passes over


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Tokens, what should follow each, and which are real."""

    token_BT: Tensor  # int64
    target_BT: Tensor  # int64: the next token if that is a target, else MASKED
    mask_BT: Tensor  # bool: a real token; padding is on the right
    source: tuple[str, ...]
    rows: tuple[tuple[int, int], ...]  # (file, row) of each, for the record

    def __post_init__(self) -> None:
        shapes = {tuple(t.shape) for t in (self.token_BT, self.target_BT, self.mask_BT)}
        if len(shapes) != 1 or self.token_BT.dim() != 2:
            raise DataError(f"A batch has tensors of different shapes: {sorted(shapes)}.")
        if {len(self.source), len(self.rows)} != {self.token_BT.shape[0]}:
            raise DataError(
                f"A batch of {self.token_BT.shape[0]} names {len(self.source)} sources "
                f"and {len(self.rows)} rows."
            )
        kinds = (self.token_BT.dtype, self.target_BT.dtype, self.mask_BT.dtype)
        if kinds != (torch.int64, torch.int64, torch.bool):
            raise DataError(f"A batch has tensors of the types {kinds}.")
        if (self.mask_BT[:, 1:] & ~self.mask_BT[:, :-1]).any():
            raise DataError("A batch is padded elsewhere than on the right.")
        if not self.targets:
            raise DataError("A batch has no target.", why=f"it holds {', '.join(self.source)}")

    @property
    def targets(self) -> int:
        """How many tokens are to be learned."""
        return int((self.target_BT != MASKED).sum())

    @property
    def tokens(self) -> int:
        """How many tokens are real."""
        return int(self.mask_BT.sum())

    def part(self, rank: int, size: int) -> "Batch":
        """The rows of one of ``size`` processes, in order, without the padding they do not need."""
        if size == 1:
            return self
        count = len(self.rows)
        some = slice(rank * count // size, (rank + 1) * count // size)
        width = int(self.mask_BT[some].sum(1).max())
        token, target, mask = (
            t[some, :width] for t in (self.token_BT, self.target_BT, self.mask_BT)
        )
        return Batch(token, target, mask, self.source[some], self.rows[some])


def collate(rendered: Sequence[Rendered], pad: int, rows: Sequence[tuple[int, int]]) -> Batch:
    """A batch of these conversations, filled up with the token ``pad``."""
    shape = (len(rendered), max((len(each.token) for each in rendered), default=0))
    token_BT = torch.full(shape, pad, dtype=torch.int64)
    target_BT = torch.full(shape, MASKED, dtype=torch.int64)
    mask_BT = torch.zeros(shape, dtype=torch.bool)
    for b, each in enumerate(rendered):
        count = len(each.token)
        token_BT[b, :count] = torch.tensor(each.token)
        mask_BT[b, :count] = True
        follows = torch.tensor(each.token[1:])
        is_target = torch.tensor(each.is_target[1:])
        target_BT[b, : count - 1] = follows.masked_fill(~is_target, MASKED)
    return Batch(token_BT, target_BT, mask_BT, tuple(r.source for r in rendered), tuple(rows))


def whole_batch(token_BT: Tensor, source: str = "text") -> Batch:
    """A batch without padding in which every token but the first is to be learned."""
    target_BT = torch.full_like(token_BT, MASKED)
    target_BT[:, :-1] = token_BT[:, 1:]
    everything = torch.ones_like(token_BT, dtype=torch.bool)
    rows = tuple((0, row) for row in range(len(token_BT)))
    return Batch(token_BT, target_BT, everything, (source,) * len(token_BT), rows)
