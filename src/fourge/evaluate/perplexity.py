"""How well a model predicts real text: the mean loss per token on pieces that nobody trains on.

The text is the language reference that comes with Python (``pydoc_data.topics``): English prose
about exact things, on every machine. It differs between Python versions, so its pieces are keyed
by their own digest. Each piece is one item, which makes base and tuned comparable in pairs.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

_CHARACTERS = 600
_EVERY = 8  # one piece in eight: the rest may be used for anything else
_AT_ONCE = 4  # pieces: enough for products at full speed, few enough for their logits


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of text."""

    text: str

    @property
    def digest(self) -> str:
        return hashlib.blake2b(self.text.encode(), digest_size=12).hexdigest()


def real_text() -> str:
    """Python's language reference, topic after topic."""
    from pydoc_data.topics import topics

    return "\n".join(topics[name].strip() for name in sorted(topics))


def held_out(limit: int) -> list[Piece]:
    """The first pieces of the slice."""
    whole = real_text()
    starts = range(0, len(whole) - _CHARACTERS, _CHARACTERS * _EVERY)
    return [Piece(whole[at : at + _CHARACTERS]) for at in starts][:limit]


def losses(model: Any, tokenizer: Any, pieces: Sequence[Piece]) -> list[float]:
    """The mean negative log-likelihood per token of each piece, in nats."""
    tokens = [tokenizer(piece.text)["input_ids"] for piece in pieces]
    found: list[float] = []
    for start in range(0, len(tokens), _AT_ONCE):
        found += _losses(model, tokens[start : start + _AT_ONCE])
    return found


@torch.inference_mode()
def _losses(model: Any, rows: Sequence[list[int]]) -> list[float]:
    """Of some texts at once: behind the end of a row stands what none of its tokens looks at."""
    width = max(map(len, rows))
    padded = [row + [0] * (width - len(row)) for row in rows]
    token_BT = torch.tensor(padded, device=model.device)
    logit_BTV = model(token_BT, use_cache=False).logits
    return [
        functional.cross_entropy(logit_BTV[at, : len(row) - 1].float(), token_BT[at, 1 : len(row)])
        .item()
        for at, row in enumerate(rows)
    ]  # fmt: skip
