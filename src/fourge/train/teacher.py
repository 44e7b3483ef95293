"""The base model's own distribution, asked once and kept: what "forget nothing" is measured by.

Before the first step the model reads every row that will be held to it, and the log-probabilities
of its top k tokens at every target position are kept: 8 bytes per token and position instead of a
second model in memory. They are cached on disk under a digest of the weights, the rows and k.

Asked before it is quantised (``kl_teacher: dense``), the model teaches what rounding took from it,
too. Asked in NVFP4, it is no distance from itself at the start (in bf16 a thousandth of a nat, by
rounding): all that is held against training is what training does. That is the clearer signal for
teaching something new (docs/identity.md).

Shapes: T target positions of a row or batch, K teacher tokens.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fourge.core.errors import ConfigError
from fourge.core.files import whole_file
from fourge.core.prefix import common_prefix
from fourge.data.batch import MASKED, Batch, collate
from fourge.data.dataset import Dataset
from fourge.data.render import Rendered
from fourge.formats.safetensors_file import Record, read_safetensors, write_safetensors
from fourge.formats.stored import KIND_OF
from fourge.train.joined import can_join
from fourge.train.loss import LOGITS, Teacher, dense_head, logits
from fourge.train.step import target_states

Row = tuple[int, int]  # file, row
TOKENS = 1024  # read at once, padding included


class TeacherCache:
    """Top-k log-probabilities of rows, by row."""

    def __init__(self, token: dict[Row, Tensor], log_p: dict[Row, Tensor], top_k: int) -> None:
        self._token, self._log_p, self._top_k = token, log_p, top_k
        self._files = {file for file, _ in token}

    def of(self, batch: Batch) -> Teacher:
        """The teacher of a batch; rows that are not held to the base model have none.

        A row that the base was asked alone has fewer there than here: its last targets are held.
        """
        counts = (batch.target_BT != MASKED).sum(1).tolist()
        token, log_p, has = [], [], []
        for row, count in zip(batch.rows, counts, strict=True):
            held = len(self._token[row]) if row[0] in self._files else 0
            blank = torch.zeros(count - held, self._top_k)
            token.append(blank.long())
            log_p.append(blank)
            if held:
                token.append(self._token[row].long())
                log_p.append(self._log_p[row].float())
            has.append(torch.arange(count) >= count - held)
        return Teacher(torch.cat(token), torch.cat(log_p), torch.cat(has))

    def save(self, path: Path) -> None:
        named = {f"token.{f}.{r}": t for (f, r), t in self._token.items()}
        named |= {f"log_p.{f}.{r}": t for (f, r), t in self._log_p.items()}
        records = [Record(name, KIND_OF[t.dtype], tuple(t.shape)) for name, t in named.items()]
        with whole_file(path, overwrite=True) as temporary:
            write_safetensors(temporary, records, named.values())

    @staticmethod
    def load(path: Path, top_k: int) -> "TeacherCache":
        parts: dict[str, dict[Row, Tensor]] = {"token": {}, "log_p": {}}
        for name, stored in read_safetensors(path).items():
            kind, file, row = name.split(".")
            parts[kind][int(file), int(row)] = stored.dense()
        return TeacherCache(parts["token"], parts["log_p"], top_k)


def cache_nbytes(positions: int, top_k: int) -> int:
    """What the cache of so many target positions holds: an int32 and a float32 per token."""
    return 8 * positions * top_k


def cache_name(weights: str, dataset: Dataset, rows: Iterable[Row], top_k: int) -> str:
    """A file name that stands for everything the cache depends on."""
    text = f"{weights} {dataset.digest} {sorted(rows)} {top_k}"
    return f"teacher-{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}.safetensors"


def require_top_k(top_k: int, vocabulary: int) -> None:
    """Raise if there are not that many tokens."""
    if not 1 <= top_k <= vocabulary:
        raise ConfigError(f"train.kl_top_k is {top_k}; the vocabulary has {vocabulary} tokens.")


@torch.no_grad()
def ask_base(
    model: Any,
    dataset: Dataset,
    rows: Sequence[Row],
    top_k: int,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> TeacherCache:
    """Ask the model, as it is now, for its distribution at every target of some rows.

    Raises:
        ConfigError: more tokens are asked for than the vocabulary has.
    """
    require_top_k(top_k, model.config.vocab_size)
    token: dict[Row, Tensor] = {}
    log_p: dict[Row, Tensor] = {}
    head: nn.Module = model.get_output_embeddings()
    rendered = {row: dataset.asked(*row) for row in rows}
    alike = _alike(rendered)
    longest = max((len(each.token) for each in rendered.values()), default=0)
    for group in _groups({row: rendered[row] for row in alike}, can_join(model, longest)):
        batch = collate([rendered[row] for row in group], dataset.pad, group)
        top, index = _top(target_states(model, batch), dense_head(head), top_k)
        counts = (batch.target_BT != MASKED).sum(1).tolist()
        parts = (index.to(torch.int32).cpu().split(counts), top.float().cpu().split(counts))
        for row, index_TK, top_TK in zip(group, *parts, strict=True):
            token |= dict.fromkeys(alike[row], index_TK)
            log_p |= dict.fromkeys(alike[row], top_TK)
        if progress:
            progress(len(token), len(rows))
    return TeacherCache(token, log_p, top_k)


def _alike(rendered: Mapping[Row, Rendered]) -> dict[Row, list[Row]]:
    """All rows that are the same to a model, by the first of them: one of them is asked."""
    first: dict[tuple[object, object], Row] = {}
    alike: dict[Row, list[Row]] = {}
    for row, each in rendered.items():
        alike.setdefault(first.setdefault((each.token, each.is_target), row), []).append(row)
    return alike


def _groups(rendered: Mapping[Row, Rendered], are_joined: bool) -> Iterator[list[Row]]:
    """Rows to be read at once: those that begin alike, if that is then read once; or are as long.

    A weight is converted once for many of them.
    """
    token = {row: each.token for row, each in rendered.items()}
    order = sorted(token, key=token.__getitem__ if are_joined else lambda row: len(token[row]))
    group: list[Row] = []
    size = 0
    for row in order:
        length = len(token[row])
        shared = common_prefix(token[row], token[group[-1]]) if group else 0
        size = size + length - shared if are_joined else length * (len(group) + 1)
        if group and size > TOKENS:
            yield group
            group, size = [], length
        group.append(row)
    if group:
        yield group


def _top(hidden_TH: Tensor, weight_VH: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """The largest log-probabilities and their tokens, some positions at a time."""
    chunk = max(1, LOGITS // (4 * len(weight_VH)))
    found = [_top_of(part_CH, weight_VH, top_k) for part_CH in hidden_TH.split(chunk)]
    return torch.cat([top for top, _ in found]), torch.cat([index for _, index in found])


def _top_of(hidden_CH: Tensor, weight_VH: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    logit_VC = logits(hidden_CH, weight_VH)
    top_KC, index_KC = logit_VC.topk(top_k, dim=0)
    return (top_KC - logit_VC.logsumexp(0)).T, index_KC.T
