"""How well a model predicts real text: the mean loss per token on pieces that nobody trains on.

The text is the language reference that comes with Python (``pydoc_data.topics``): English prose
about exact things, on every machine. It differs between Python versions, so its pieces are keyed
by their own digest. Each piece is one item, which makes base and tuned comparable in pairs.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

import torch

_CHARACTERS = 600
_EVERY = 8  # one piece in eight: the rest may be used for anything else


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of text."""

    text: str

    @property
    def digest(self) -> str:
        return hashlib.blake2b(self.text.encode(), digest_size=12).hexdigest()


def held_out(limit: int) -> list[Piece]:
    """The first pieces of the slice."""
    from pydoc_data.topics import topics

    whole = "\n".join(topics[name].strip() for name in sorted(topics))
    starts = range(0, len(whole) - _CHARACTERS, _CHARACTERS * _EVERY)
    return [Piece(whole[at : at + _CHARACTERS]) for at in starts][:limit]


def losses(model: Any, tokenizer: Any, pieces: list[Piece]) -> list[float]:
    """The mean negative log-likelihood per token of each piece, in nats."""
    found = []
    for piece in pieces:
        token_1T = tokenizer(piece.text, return_tensors="pt")["input_ids"].to(model.device)
        with torch.inference_mode():
            logit_TV = model(token_1T).logits[0, :-1].float()
            loss = torch.nn.functional.cross_entropy(logit_TV, token_1T[0, 1:])
        found.append(loss.item())
    return found
