"""The rows of a batch in one sequence that begins with what they share.

Rows differ in length, and a batch that is padded to the longest computes what nobody reads; and
most chat templates begin every row with the same system text, which a padded batch computes once
for every row. Laid one behind the other, behind a single copy of their beginning, they are

    shared   row 0        row 1     row 2
    s s s s  a a a a a a  b b b     c c c c c

where a token sees the shared beginning and the earlier tokens of its own row, at the positions
it would have alone. It is the same computation: only the order of some sums differs, in the last
bits (``tests/train/test_joined.py``).

Attention is then over the whole sequence, and its mask takes the square of it, so this is for rows
that are short: up to ``MOST`` tokens, and only where it saves a quarter of them. A batch without
padding and without a common beginning, which a plan of memory assumes, is never joined.

Shapes: B rows, T tokens of the longest, S tokens of the joined sequence, N targets.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fourge.data.batch import MASKED, Batch

MOST = 1024  # tokens of a joined sequence: a mask of 4 MiB
WORTH = 0.75  # of the padded tokens
_SHARED = -1  # the row of a token that belongs to all


@dataclass(frozen=True, slots=True)
class Joined:
    """What a model is given, and where the targets are, in the order that a padded batch has."""

    token_S: Tensor  # int64
    position_S: Tensor  # int64
    row_S: Tensor  # int64, _SHARED where all rows are meant
    target_at_N: Tensor  # int64

    def mask(self, dtype: torch.dtype) -> Tensor:
        """What is added to the scores: nothing where a token may look, else the least number."""
        of_all = self.row_S == _SHARED
        own = self.row_S[:, None] == self.row_S
        earlier = self.position_S <= self.position_S[:, None]
        may_SS = (own | of_all) & earlier
        mask_SS = torch.full(may_SS.shape, torch.finfo(dtype).min, dtype=dtype)
        return mask_SS.masked_fill_(may_SS, 0.0)[None, None]


def can_join(config: Any) -> bool:
    """Whether every layer of a model looks at all earlier tokens, by positions that are given."""
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    window = getattr(config, "sliding_window", None) if len(kinds) == 1 else None
    rotary = getattr(config, "rope_parameters", None) or getattr(config, "rope_theta", None)
    plain = getattr(config, "_attn_implementation", None) in ("sdpa", "eager")
    return kinds == {"full_attention"} and window is None and rotary is not None and plain


def joined(batch: Batch) -> Joined | None:
    """The rows of a batch in one sequence; None where padding is as good."""
    shared = _shared(batch)
    rest_BT = batch.mask_BT.clone()
    rest_BT[:, :shared] = False
    rows, width = batch.token_BT.shape
    total = shared + int(rest_BT.sum())
    if rows == 1 or total > min(MOST, WORTH * rows * width):
        return None
    row_N, position_N = rest_BT.nonzero(as_tuple=True)
    beginning = torch.arange(shared)
    is_target = batch.target_BT[rest_BT] != MASKED
    return Joined(
        token_S=torch.cat([batch.token_BT[0, :shared], batch.token_BT[rest_BT]]),
        position_S=torch.cat([beginning, position_N]),
        row_S=torch.cat([torch.full_like(beginning, _SHARED), row_N]),
        target_at_N=shared + is_target.nonzero()[:, 0],
    )


def _shared(batch: Batch) -> int:
    """How many tokens all rows begin with, as long as none of them has a target."""
    same_T = (batch.token_BT == batch.token_BT[:1]).all(0) & batch.mask_BT.all(0)
    free_T = (batch.target_BT == MASKED).all(0)
    return int((same_T & free_T).long().cumprod(0).sum())
