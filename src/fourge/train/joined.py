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

What comes behind a row's last target, the end of its turn for one, is left out.

Tokens that follow each other are a *run*, and a run attends to those on its way to the root
(``model/runs.py``). Only where it saves a quarter of the tokens: a batch without padding and
without a common beginning, which a plan of memory assumes, is never joined.

Shapes: B rows, T tokens of the longest, S tokens of the joined sequence, N targets; Q tokens of a
run.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fourge.data.batch import MASKED, Batch
from fourge.model.attention import takes_sight
from fourge.model.runs import Run, Runs

WORTH = 0.75  # of the padded tokens
_ROOT = -1


@dataclass(frozen=True, slots=True)
class Joined:
    """What a model is given, and where the targets are, in the order that a padded batch has."""

    token_S: Tensor  # int64
    position_S: Tensor  # int64
    parents: tuple[int, ...]  # of each token, the one before it: always an earlier one
    target_at_N: Tensor  # int64

    def runs(self, dtype: torch.dtype, device: torch.device) -> Runs:
        """The sequence in runs, with masks for attention in this dtype."""
        spans, number_at = _spans(self.parents), dict[int, int]()
        runs: list[Run] = []
        for number, (start, end) in enumerate(spans):
            parent = self.parents[start]
            before = () if parent == _ROOT else (*runs[number_at[parent]].before, number_at[parent])
            number_at |= dict.fromkeys(range(start, end), number)
            seen = sum(spans[each][1] - spans[each][0] for each in before)
            runs.append(Run(before, _causal(end - start, seen, dtype).to(device)))
        return Runs(tuple(runs))


def _spans(parents: tuple[int, ...]) -> list[tuple[int, int]]:
    """First token and end of each run, which ends before one that is not the only one to follow."""
    children = Counter(parents)
    is_first = [parent != token - 1 or children[parent] > 1 for token, parent in enumerate(parents)]
    starts = [0, *(token for token, first in enumerate(is_first) if first and token)]
    return list(zip(starts, [*starts[1:], len(parents)], strict=True))


def _causal(count: int, before: int, dtype: torch.dtype) -> Tensor:
    """What is added to the scores of ``count`` tokens: each sees those before, and itself."""
    may_QT = torch.ones(count, before + count, dtype=torch.bool).tril(before)
    mask_QT = torch.full(may_QT.shape, torch.finfo(dtype).min, dtype=dtype)
    return mask_QT.masked_fill_(may_QT, 0.0)


def can_join(model: Any, longest: int) -> bool:
    """Whether a model sees in a row of this length all that came before, by given positions."""
    config = model.config
    window = getattr(config, "sliding_window", None) or longest
    rotary = getattr(config, "rope_parameters", None) or getattr(config, "rope_theta", None)
    return takes_sight(model) and longest <= window and rotary is not None


def joined(batch: Batch) -> Joined | None:
    """The rows of a batch in one sequence; None where padding is as good."""
    rows, width = batch.token_BT.shape
    if rows == 1:
        return None
    places: dict[tuple[int, int], int] = {}  # by the place of the token before, and the token
    path_of = [_path(places, row) for row in _rows(batch)]
    if len(places) > WORTH * rows * width:
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
    """Each row up to where its last target is foretold; nobody asks what is behind it."""
    column_T = torch.arange(1, batch.target_BT.shape[1] + 1)
    lengths = ((batch.target_BT != MASKED) * column_T).amax(1).tolist()
    tokens = batch.token_BT.tolist()
    return [row[:length] for row, length in zip(tokens, lengths, strict=True)]


def _path(places: dict[tuple[int, int], int], row: list[int]) -> list[int]:
    """Where each token of a row is; what no row before has had is put at the end."""
    path, place = [], _ROOT
    for token in row:
        place = places.setdefault((place, token), len(places))
        path.append(place)
    return path
