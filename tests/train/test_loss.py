"""The chunked loss against transformers' own, and against KL written out with autograd."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fourge.data.batch import MASKED, Batch, collate
from fourge.data.records import Example, Turn
from fourge.data.render import Renderer
from fourge.model import lookup
from fourge.model.mixed import compute_in_
from fourge.model.swap import nvfp4_layers, quantize_, scale_groups_of
from fourge.nvfp4.matrix import dequantize
from fourge.train import loss as module
from fourge.train.loss import Loss, Weights, dense_head, head_loss
from fourge.train.step import batch_loss
from tests.conftest import byte_tokenizer, tiny_model
from tests.data.templates import channels, gemma3, llama3, mistral
from tests.train.samples import (
    FAMILIES,
    batch_of,
    gradients,
    states,
    targets,
    teacher_of,
    their_loss,
)

CHUNKS = [1, 7, None]
every_family = pytest.mark.parametrize(("family", "tied"), FAMILIES)
every_chunk = pytest.mark.parametrize("chunk", CHUNKS)


def our_loss(model: Any, batch: Batch, **settings: Any) -> Loss:
    return batch_loss(model, batch, Weights(1 / batch.targets), **settings)


# Against transformers


@every_family
@every_chunk
def test_loss_and_gradients_are_transformers_own(
    family: str, tied: bool, chunk: int | None
) -> None:
    batch = batch_of([19, 7, 30])
    theirs, ours = tiny_model(family, tied=tied), tiny_model(family, tied=tied)
    expected = their_loss(theirs, batch)
    expected.backward()
    loss = our_loss(ours, batch, chunk=chunk)
    assert loss.total.item() == pytest.approx(expected.item(), abs=1e-5)
    assert loss.target_sum.item() == pytest.approx(expected.item() * batch.targets, rel=1e-5)
    assert loss.teacher_sum.item() == 0
    loss.total.backward()
    reference = gradients(theirs)
    assert gradients(ours).keys() == reference.keys()
    for name, grad in gradients(ours).items():
        torch.testing.assert_close(grad, reference[name], rtol=1e-4, atol=1e-6, msg=name)


@every_family
@every_chunk
def test_a_head_stored_in_bf16_loses_nothing_but_the_rounding_of_its_gradient(
    family: str, tied: bool, chunk: int | None
) -> None:
    batch = batch_of([19, 7, 30])
    ours = tiny_model(family, tied=tied, dtype=torch.bfloat16)
    theirs = tiny_model(family, tied=tied, dtype=torch.bfloat16).float()
    compute_in_(ours, torch.float32)
    expected, loss = their_loss(theirs, batch), our_loss(ours, batch, chunk=chunk)
    assert loss.total.item() == pytest.approx(expected.item(), abs=1e-5)
    expected.backward()
    loss.total.backward()
    reference = gradients(theirs)
    for name, grad in gradients(ours).items():
        assert grad.dtype == torch.bfloat16
        largest = reference[name].abs().max().item()  # of a tied weight two are rounded, and added
        torch.testing.assert_close(grad.float(), reference[name], rtol=2**-8, atol=largest / 256)


@pytest.mark.parametrize("make", [byte_tokenizer, llama3, gemma3, mistral, channels])
def test_rows_as_rendered_are_learned_as_transformers_learns_masked_labels(
    make: Callable[[], Any],
) -> None:
    """Labels are written down from the text: the answer and its stop token, nothing else."""
    tokenizer, model = make(), tiny_model("qwen3", tied=True)
    talks = [("who?", "me"), ("what is this?", "that, and the other")]
    examples = [Example((Turn("user", q), Turn("assistant", a)), "t.tsv:1") for q, a in talks]
    rendered = [Renderer(tokenizer).render(example) for example in examples]
    batch = collate(rendered, 257, [(0, 0), (0, 1)])
    label_BT = torch.full_like(batch.token_BT, MASKED)
    for row, (question, _) in enumerate(talks):
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True
        )["input_ids"]
        after = len(rendered[row].token)
        stops = [i for i in range(len(prompt), after) if int(batch.token_BT[row, i]) >= 258]
        label_BT[row, len(prompt) : stop_of(stops, make) + 1] = batch.token_BT[
            row, len(prompt) : stop_of(stops, make) + 1
        ]
    with torch.no_grad():
        output = model(batch.token_BT, attention_mask=batch.mask_BT.long(), labels=label_BT)
        loss = our_loss(model, batch)
    assert int((label_BT != MASKED).sum()) == batch.targets
    assert loss.total.item() == pytest.approx(output.loss.item(), abs=1e-5)


def stop_of(specials: list[int], make: Callable[[], Any]) -> int:
    """Of the special tokens after a prompt, the one that ends the answer."""
    return specials[2] if make is channels else specials[0]


def test_losing_the_stop_token_would_be_seen() -> None:
    model, batch = tiny_model("qwen3", tied=True), batch_of([19])
    without = batch.target_BT.clone()
    without[0, int((without[0] != MASKED).nonzero().max())] = MASKED
    less = Batch(batch.token_BT, without, batch.mask_BT, batch.source, batch.rows)
    assert abs(our_loss(model, less).total - our_loss(model, batch).total) > 1e-3


# Chunks


@pytest.mark.parametrize("chunk", [1, 2, 7, 11, 32, 33, 34, 1000])
def test_a_chunk_changes_nothing_but_rounding(chunk: int) -> None:
    results = []
    for size in (chunk, None):
        hidden, head = states()
        loss = head_loss(hidden, head, targets(), Weights(1 / 33), chunk=size)
        loss.total.backward()
        results.append((loss.total, hidden.grad, head.weight.grad))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


def test_slabs_of_the_head_change_nothing_but_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for slab in (1 << 24, 7 * 16):
        monkeypatch.setattr(module, "SLAB", slab)
        hidden, head = states()
        head_loss(hidden, head, targets(), Weights(1 / 33), chunk=5).total.backward()
        results.append((hidden.grad, head.weight.grad))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


def test_the_default_chunk_is_what_the_allowance_of_logits_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hidden, head = states()
    monkeypatch.setattr(module, "LOGITS", 4 * 90 * 8)  # 8 positions; 33 make 5 chunks of 7
    with Largest() as watch:
        head_loss(hidden, head, targets(), Weights(1 / 33))
    assert {shape for shape in watch.shapes if shape[:1] == (90,)} <= {(90, 7), (90, 5), (90, 16)}
    assert (90, 7) in watch.shapes


@pytest.mark.parametrize(
    ("positions", "itemsize", "asked", "chunk"),
    [
        (8, 4, None, 8),  # what the allowance holds
        (9, 4, None, 5),  # in chunks of one size
        (16, 2, None, 16),  # 8 more take as much as the float32 sum of two chunks: 90 * 16 * 2
        (17, 2, None, 6),  # one position too many
        (16, 2, 8, 8),  # asked for
        (0, 2, None, 1),
    ],
)
def test_all_positions_go_at_once_where_that_takes_no_more_memory(
    positions: int, itemsize: int, asked: int | None, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOGITS", 4 * 90 * 8)
    assert module.chunk_of(positions, (90, 16), itemsize, asked) == chunk


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation made, views apart."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numel, self.shapes = 0, set[tuple[int, ...]]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {place(each) for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)}
        result = func(*args, **(kwargs or {}))
        for each in tree_leaves(result):
            if isinstance(each, Tensor) and place(each) not in given:
                self.numel = max(self.numel, each.numel())
                self.shapes.add(tuple(each.shape))
        return result


def place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def test_full_logits_never_exist() -> None:
    positions, hidden_size, vocab = 128, 16, 2000
    hidden, head = states(positions, hidden_size, vocab)
    teacher = teacher_of(torch.randn(positions, vocab), 8)
    with Largest() as watch:
        loss = head_loss(
            hidden, head, targets(positions, vocab), Weights(1.0, 1.0), teacher=teacher, chunk=4
        )
        loss.total.backward()
    assert watch.numel == vocab * hidden_size  # the gradient of the head, and no more


def test_a_loss_that_is_scaled_scales_its_gradients() -> None:
    grads = []
    for factor in (1.0, 0.5):
        hidden, head = states()
        (head_loss(hidden, head, targets(), Weights(1.0)).total * factor).backward()
        grads.append((hidden.grad, head.weight.grad))
    for whole, half in zip(*grads, strict=True):
        assert torch.equal(whole * 0.5, half)


def test_backward_twice_gives_the_same_gradient_twice() -> None:
    hidden, head = states()
    loss = head_loss(hidden, head, targets(), Weights(1.0), backward_twice=True).total
    loss.backward(retain_graph=True)
    first = (hidden.grad, head.weight.grad)
    hidden.grad = head.weight.grad = None
    loss.backward()
    assert all(
        a is not None and b is not None and torch.equal(a, b)
        for a, b in zip(first, (hidden.grad, head.weight.grad), strict=True)
    )


def test_a_second_backward_that_was_not_announced_is_refused() -> None:
    hidden, head = states()
    loss = head_loss(hidden, head, targets(), Weights(1.0)).total
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="expect one backward pass, and got two"):
        loss.backward()


@every_family
def test_two_passes_through_a_model_are_alike(family: str, tied: bool) -> None:
    model, batch = tiny_model(family, tied=tied), batch_of([12, 9])
    compute_in_(model, torch.float32)
    our_loss(model, batch).total.backward()
    once = gradients(model)
    loss = our_loss(model, batch, backward_twice=True).total
    for last in (False, True):
        model.zero_grad()
        loss.backward(retain_graph=not last)
        assert all(torch.equal(grad, once[name]) for name, grad in gradients(model).items())


def test_weights_that_are_not_trained_cost_no_gradient() -> None:
    hidden, head = states()
    head.weight.requires_grad_(False)
    with Largest() as watch:
        head_loss(hidden, head, targets(), Weights(1.0), chunk=2).total.backward()
    assert hidden.grad is not None
    assert head.weight.grad is None
    assert watch.numel < head.weight.numel()
    head.weight.requires_grad_(True)
    head_loss(hidden.detach(), head, targets(), Weights(1.0)).total.backward()
    assert head.weight.grad is not None


@pytest.mark.parametrize("tied", [True, False])
def test_no_gradient_of_the_head_outlives_its_step(tied: bool) -> None:
    model, batch = tiny_model("llama", tied=tied), batch_of([12, 9])
    compute_in_(model, torch.float32)
    our_loss(model, batch).total.backward()
    model.zero_grad()
    assert all(reference() is None for reference in lookup._offered.values())


# NVFP4 heads


@pytest.mark.parametrize("packed", [False, True])
@every_chunk
def test_a_quantised_head_is_seen_decoded_and_its_gradient_passes_straight_through(
    packed: bool, chunk: int | None
) -> None:
    model = tiny_model("llama", dtype=torch.bfloat16)
    compute_in_(model, torch.float32)
    quantize_(model, keep=("embed_tokens", "norm"))
    if packed:
        for group in scale_groups_of(model):
            group.pack_()
    head = nvfp4_layers(model)["lm_head"]
    hidden = torch.randn(20, 64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    target = targets(20, 300)
    loss = head_loss(hidden, head, target, Weights(1 / 20), chunk=chunk).total
    loss.backward()
    weight = dequantize(head.codes()).requires_grad_()
    twin = hidden.detach().requires_grad_()
    expected = functional.cross_entropy(twin @ weight.T, target)
    expected.backward()
    assert torch.equal(dense_head(head), weight)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-5)
    assert hidden.grad is not None
    assert twin.grad is not None
    assert weight.grad is not None
    assert head.weight.grad is not None
    torch.testing.assert_close(hidden.grad, twin.grad, rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(head.weight.grad.float(), weight.grad, rtol=2**-7, atol=1e-6)
