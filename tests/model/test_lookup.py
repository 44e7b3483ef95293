"""The gradient of a lookup is torch's, dense or added to one that is on its way."""

import copy
import gc
import weakref
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from fourge.model.lookup import Lookup, _offered, offer_gradient

ROWS, WIDTH = 12, 6
TOKENS = torch.tensor([[3, 3, 0, 11], [5, 3, 2, 0]])


def pair(padding: int | None = None, dtype: torch.dtype = torch.float32) -> tuple[Any, Any]:
    torch.manual_seed(0)
    plain = nn.Embedding(ROWS, WIDTH, padding_idx=padding).to(dtype)
    return Lookup(copy.deepcopy(plain)), plain


def weighted(rows: Tensor, seed: int = 0) -> Tensor:
    factor = torch.randn(rows.shape, generator=torch.Generator().manual_seed(seed))
    return (rows.float() * factor).sum()


@given(
    st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=30),
    st.sampled_from([None, 0, 3, ROWS - 1]),
)
def test_values_and_gradient_are_torch_s(tokens: list[int], padding: int | None) -> None:
    """Tokens that come many times, and the padding token, which is never trained by lookup."""
    ours, theirs = pair(padding)
    token = torch.tensor(tokens)
    assert torch.equal(ours(token), theirs(token))
    weighted(ours(token)).backward()
    weighted(theirs(token)).backward()
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)


@pytest.mark.parametrize("shape", [(), (0,), (2, 3), (2, 2, 2)])
def test_tokens_of_any_shape_are_looked_up(shape: tuple[int, ...]) -> None:
    ours, theirs = pair()
    token = torch.randint(ROWS, shape)
    assert ours(token).shape == (*shape, WIDTH)
    for each in (ours, theirs):
        weighted(each(token)).backward()
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)


def test_many_rows_are_summed_in_float32_and_rounded_once() -> None:
    """In bf16 a sum of ones stops at 256."""
    ours, _ = pair(dtype=torch.bfloat16)
    ours(torch.full((1000,), 4)).sum().backward()
    assert ours.weight.grad.dtype == torch.bfloat16
    assert (ours.weight.grad[4] == 1000).all()
    assert (ours.weight.grad[5] == 0).all()


def test_it_is_an_embedding_with_the_same_parameter() -> None:
    plain = nn.Embedding(ROWS, WIDTH, padding_idx=2).eval()
    ours = Lookup(plain)
    assert isinstance(ours, nn.Embedding)
    assert ours.weight is plain.weight
    assert (ours.num_embeddings, ours.embedding_dim, ours.padding_idx) == (ROWS, WIDTH, 2)
    assert not ours.training
    assert list(ours.state_dict()) == ["weight"]
    assert repr(ours).startswith("Lookup(12, 6, padding_idx=2")


def test_a_frozen_weight_gets_no_gradient() -> None:
    ours, _ = pair()
    ours.weight.requires_grad_(False)
    assert not ours(TOKENS).requires_grad


class Head(torch.autograd.Function):
    """A product with the embedding's weight that makes, and may offer, a dense gradient."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, offers: bool) -> Tensor:
        ctx.save_for_backward(hidden, weight)
        ctx.weight, ctx.offers = weight, offers
        return hidden @ weight.T

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        hidden, weight = ctx.saved_tensors
        own = grad.flatten(0, 1).T @ hidden.flatten(0, 1)
        if ctx.offers:
            offer_gradient(ctx.weight, own)
        return grad @ weight, own, None


def tied_loss(lookup: Any, token: Tensor, *, offers: bool) -> Tensor:
    hidden = torch.tanh(lookup(token))
    logits: Tensor = Head.apply(hidden, lookup.weight, offers)  # type: ignore[no-untyped-call]
    return functional.cross_entropy(logits.flatten(0, 1), token.flatten(), reduction="sum")


def true_grad(plain: Any, *tokens: Tensor) -> Tensor:
    plain.weight.grad = None
    for token in tokens:
        logits = torch.tanh(plain(token)) @ plain.weight.T
        functional.cross_entropy(logits.flatten(0, 1), token.flatten(), reduction="sum").backward()
    grad: Tensor = plain.weight.grad
    return grad


@pytest.mark.parametrize("padding", [None, 3])
@pytest.mark.parametrize("offers", [False, True])
def test_a_tied_weight_gets_the_sum_of_both_gradients(offers: bool, padding: int | None) -> None:
    ours, theirs = pair(padding)
    tied_loss(ours, TOKENS, offers=offers).backward()
    torch.testing.assert_close(ours.weight.grad, true_grad(theirs, TOKENS))


def test_an_offered_gradient_is_the_one_that_arrives() -> None:
    """No second dense matrix: the lookup returns none, and autograd keeps the offered one."""
    ours, _ = pair()
    arrived: list[Tensor | None] = []
    made: list[int] = []
    hidden = torch.tanh(ours(TOKENS))
    hidden.grad_fn.next_functions[0][0].register_hook(  # type: ignore[union-attr]
        lambda grads, _: arrived.append(grads[1])
    )

    class Watched(Head):
        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
            result = Head.backward(ctx, grad)
            made.append(result[1].data_ptr())
            return result

    Watched.apply(hidden, ours.weight, True).sum().backward()  # type: ignore[no-untyped-call]
    assert arrived == [None]
    assert [ours.weight.grad.data_ptr()] == made
    assert ours.weight not in _offered


def test_rows_are_added_to_an_offered_gradient_and_rounded_once() -> None:
    """257 is no bf16 number: rounded first, 257 + 1 would be 256."""
    ours, _ = pair(dtype=torch.bfloat16)
    offered = torch.ones(ROWS, WIDTH).bfloat16()
    rows = ours(torch.full((257,), 4))
    offer_gradient(ours.weight, offered)
    rows.sum().backward()
    assert ours.weight.grad is None  # whoever offered it hands it over
    assert (offered[4] == 258).all()
    assert (offered[5] == 1).all()


def test_an_offer_is_for_one_backward_pass() -> None:
    ours, theirs = pair()
    tied_loss(ours, TOKENS, offers=True).backward()
    first = ours.weight.grad
    kept, ours.weight.grad = first.clone(), None
    weighted(ours(TOKENS)).backward()
    weighted(theirs(TOKENS)).backward()
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)
    assert torch.equal(first, kept)


def test_passes_add_up() -> None:
    ours, theirs = pair()
    other = TOKENS.flip(0) // 2
    for token in (TOKENS, other):
        tied_loss(ours, token, offers=True).backward()
    torch.testing.assert_close(ours.weight.grad, true_grad(theirs, TOKENS, other))


@pytest.mark.parametrize("offers", [(True, True), (True, False), (False, True)])
def test_two_losses_in_one_backward_pass_add_up(offers: tuple[bool, bool]) -> None:
    """The second gradient of the head is added to the first: it is no longer there to add to."""
    ours, theirs = pair()
    other = TOKENS.flip(0) // 2
    losses = [tied_loss(ours, t, offers=o) for t, o in zip((TOKENS, other), offers, strict=True)]
    (losses[0] + losses[1]).backward()
    torch.testing.assert_close(ours.weight.grad, true_grad(theirs, TOKENS, other))


def test_another_use_of_the_weight_loses_nothing() -> None:
    ours, theirs = pair()
    (tied_loss(ours, TOKENS, offers=True) + ours.weight.square().sum()).backward()
    torch.testing.assert_close(
        ours.weight.grad, true_grad(theirs, TOKENS) + 2 * theirs.weight.detach()
    )


def test_an_offer_that_no_lookup_takes_keeps_no_gradient_alive() -> None:
    """The head of a model that is not tied: its gradient is gone when the optimizer drops it."""
    ours, _ = pair()
    weight = nn.Parameter(torch.randn(ROWS, WIDTH))
    Head.apply(torch.tanh(ours(TOKENS)), weight, True).sum().backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None
    alive = weakref.ref(weight.grad.untyped_storage())
    pointer = weakref.ref(weight.grad)
    weight.grad = None
    gc.collect()
    assert pointer() is None
    assert alive() is None


def test_offering_no_gradient_offers_nothing() -> None:
    ours, _ = pair()
    offer_gradient(ours.weight, None)
    assert ours.weight not in _offered
