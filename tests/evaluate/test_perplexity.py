import pytest
import torch

from fourge.evaluate.perplexity import Piece, held_out, losses
from tests.conftest import byte_tokenizer, tiny_model


def test_the_loss_is_transformers_own() -> None:
    model, tokenizer = tiny_model("qwen3"), byte_tokenizer()
    texts = [
        "The end of a statement.",
        "Another one, longer than that.",
        "No.",
        "Four!",
        "And so on",
    ]
    pieces = [Piece(text) for text in texts]  # some at once, of different lengths
    found = losses(model, tokenizer, pieces)
    for piece, loss in zip(pieces, found, strict=True):
        token = tokenizer(piece.text, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            assert loss == pytest.approx(model(token, labels=token).loss.item(), rel=1e-5)


def test_pieces_are_many_equal_distinct_and_real() -> None:
    pieces = held_out(48)
    assert len(pieces) == 48
    assert {len(piece.text) for piece in pieces} == {600}
    assert len({piece.digest for piece in pieces}) == 48
    assert "statement" in "".join(piece.text for piece in pieces)
    assert held_out(5) == pieces[:5]
