"""The rows of a batch in one sequence in which nothing is computed twice.

Rows differ in length, and a batch that is padded to the longest computes what nobody reads; and
most chat templates begin every row with the same system text, which a padded batch computes once
for every row. Where rows begin alike they are laid down once, as a tree:

    s s s s - a a a a a a       a token sees those on its way to the root,
            - b b b             at the positions that it would have alone
            - c c - d d
                  - e e e

It is the same computation: only the order of some sums differs, in the last bits
(``tests/train/test_joined.py``). A token that rows share may have a target for each of them.

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
_ROOT = -1


@dataclass(frozen=True, slots=True)
class Joined:
    """What a model is given, and where the targets are, in the order that a padded batch has."""

    token_S: Tensor  # int64
    position_S: Tensor  # int64
    parents: tuple[int, ...]  # of each token, the one before it: always an earlier one
    target_at_N: Tensor  # int64

    def mask(self, dtype: torch.dtype) -> Tensor:
        """What is added to the scores: nothing where a token may look, else the least number."""
        may_SS = torch.eye(len(self.parents), dtype=torch.bool)
        for token, parent in enumerate(self.parents):
            if parent != _ROOT:
                may_SS[token] |= may_SS[parent]
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
    rows, width = batch.token_BT.shape
    if rows == 1:
        return None
    places: dict[tuple[int, int], int] = {}  # by the place of the token before, and the token
    path_of = [_path(places, row) for row in _rows(batch)]
    if len(places) > min(MOST, WORTH * rows * width):
        return None
    position_of = {place: n for path in path_of for n, place in enumerate(path)}
    row_N, column_N = (batch.target_BT != MASKED).nonzero(as_tuple=True)
    at = [path_of[row][n] for row, n in zip(row_N.tolist(), column_N.tolist(), strict=True)]
    return Joined(
        token_S=torch.tensor([token for _, token in places]),
        position_S=torch.tensor([position_of[place] for place in range(len(places))]),
        parents=tuple(parent for parent, _ in places),
        target_at_N=torch.tensor(at),
    )


def _rows(batch: Batch) -> list[list[int]]:
    lengths = batch.mask_BT.sum(1).tolist()  # padding is at the end
    tokens = batch.token_BT.tolist()
    return [row[:length] for row, length in zip(tokens, lengths, strict=True)]


def _path(places: dict[tuple[int, int], int], row: list[int]) -> list[int]:
    """Where each token of a row is; what no row before has had is put at the end."""
    path, place = [], _ROOT
    for token in row:
        place = places.setdefault((place, token), len(places))
        path.append(place)
    return path
