"""The chunked loss against transformers' own, and against KL written out with autograd."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
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
from fourge.train.loss import Loss, Teacher, Weights, dense_head, head_loss
from fourge.train.step import batch_loss
from tests.conftest import byte_tokenizer, tiny_model
from tests.data.templates import channels, gemma3, llama3, mistral
from tests.train.samples import FAMILIES, batch_of, gradients, their_loss

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


def states(positions: int = 33, hidden: int = 16, vocab: int = 90) -> tuple[Tensor, nn.Linear]:
    torch.manual_seed(3)
    head = nn.Linear(hidden, vocab, bias=False)
    return torch.randn(positions, hidden, requires_grad=True), head


def targets(positions: int = 33, vocab: int = 90) -> Tensor:
    return torch.randint(vocab, (positions,), generator=torch.Generator().manual_seed(5))


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


# Teachers


def teacher_of(logit_TV: Tensor, top_k: int, has: Tensor | None = None) -> Teacher:
    log_p, token = logit_TV.float().log_softmax(-1).topk(top_k)
    return Teacher(token, log_p, torch.ones(len(token), dtype=torch.bool) if has is None else has)


def bucketed(logit_TV: Tensor, teacher_TV: Tensor, top_k: int) -> Tensor:
    """KL over the teacher's top k tokens and one bucket of all others, in float64, per position."""
    log_p, log_q = teacher_TV.double().log_softmax(-1), logit_TV.double().log_softmax(-1)
    p_K, token = log_p.topk(top_k)
    kl = (p_K.exp() * (p_K - log_q.gather(1, token))).sum(1)
    if top_k == logit_TV.shape[1]:
        return kl
    inside = torch.zeros_like(log_p, dtype=torch.bool).scatter(1, token, True)
    p_rest = log_p.masked_fill(inside, -torch.inf).logsumexp(1)
    q_rest = log_q.masked_fill(inside, -torch.inf).logsumexp(1)
    return kl + p_rest.exp() * (p_rest - q_rest)


@pytest.mark.parametrize("spread", [1.0, 8.0, 30.0])
@pytest.mark.parametrize("top_k", [1, 2, 8, 89, 90])
@every_chunk
def test_kl_and_its_gradient_are_what_autograd_makes_of_the_formula(
    top_k: int, spread: float, chunk: int | None
) -> None:
    hidden, head = states()
    teacher_TV = spread * torch.randn(33, 90, generator=torch.Generator().manual_seed(9))
    loss = head_loss(
        hidden, head, torch.full((33,), MASKED), Weights(1.0, 1 / 33),
        teacher=teacher_of(teacher_TV, top_k), chunk=chunk,
    )  # fmt: skip
    loss.total.backward()
    twin, other = hidden.detach().requires_grad_(), states()[1]
    expected = bucketed(twin @ other.weight.T, teacher_TV, top_k)
    expected.mean().backward()
    assert loss.total.item() == pytest.approx(expected.mean().item(), abs=1e-5)
    assert loss.teacher_sum.item() == pytest.approx(expected.sum().item(), rel=1e-5)
    assert loss.target_sum.item() == 0
    assert_close_gradients(hidden, head, twin, other)


def assert_close_gradients(hidden: Tensor, head: nn.Linear, twin: Tensor, other: nn.Linear) -> None:
    for mine, reference in ((hidden.grad, twin.grad), (head.weight.grad, other.weight.grad)):
        torch.testing.assert_close(mine, reference, rtol=1e-4, atol=1e-6)


def test_over_the_whole_vocabulary_it_is_torch_s_kl() -> None:
    hidden, head = states()
    teacher_TV = 3 * torch.randn(33, 90, generator=torch.Generator().manual_seed(9))
    loss = head_loss(hidden, head, torch.full((33,), MASKED), Weights(1.0, 1 / 33),
                     teacher=teacher_of(teacher_TV, 90))  # fmt: skip
    expected = functional.kl_div((hidden @ head.weight.T).log_softmax(-1),
                                 teacher_TV.log_softmax(-1), log_target=True,
                                 reduction="batchmean")  # fmt: skip
    assert loss.total.item() == pytest.approx(expected.item(), abs=1e-5)


@pytest.mark.parametrize("top_k", [1, 8, 90])
def test_a_student_that_is_its_teacher_has_nothing_to_learn(top_k: int) -> None:
    hidden, head = states()
    teacher = teacher_of((hidden @ head.weight.T).detach(), top_k)
    loss = head_loss(hidden, head, torch.full((33,), MASKED), Weights(1.0, 1.0), teacher=teacher)
    loss.total.backward()
    assert abs(loss.total.item()) < 33 * 5e-6
    assert hidden.grad is not None
    assert hidden.grad.abs().max() < 2e-6


@pytest.mark.parametrize("top_k", [2, 8])
def test_a_student_that_is_sure_has_bounded_gradients(top_k: int) -> None:
    """As its teacher is, whose probabilities were rounded to fp16 and no longer add up to one."""
    head = nn.Linear(90, 90, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.eye(90))
    logit = torch.zeros(1, 90)
    logit[0, 3], logit[0, 60] = 25.0, 24.9
    hidden = logit.requires_grad_()
    log_p, token = logit.detach().log_softmax(-1).topk(top_k)
    rounded = log_p.half().float()
    assert rounded.exp().sum() < 1 - 1e-5
    teacher = Teacher(token, rounded, torch.ones(1, dtype=torch.bool))
    loss = head_loss(hidden, head, torch.full((1,), MASKED), Weights(1.0, 1.0), teacher=teacher)
    loss.total.backward()
    assert hidden.grad is not None
    assert loss.total.item() < 0.02
    assert hidden.grad.abs().max() < 1e-3


@every_chunk
def test_both_kinds_of_positions_stand_in_one_chunk(chunk: int | None) -> None:
    """Each counts by its own weight; a position without a teacher is not touched by one."""
    generator = torch.Generator().manual_seed(2)
    has = torch.rand(33, generator=generator) < 0.5
    teacher_TV = 3 * torch.randn(33, 90, generator=generator)
    target = targets().masked_fill(has, MASKED)
    full = teacher_of(teacher_TV, 8, has)
    blank = has.unsqueeze(1)
    given = Teacher(full.token_TK * blank, full.log_p_TK * blank, has)  # zeros, as the cache gives
    hidden, head = states()
    loss = head_loss(hidden, head, target, Weights(0.3, 0.7), teacher=given, chunk=chunk)
    loss.total.backward()
    twin, other = hidden.detach().requires_grad_(), states()[1]
    logit = twin @ other.weight.T
    nll = functional.cross_entropy(logit[~has], target[~has], reduction="sum")
    kl = bucketed(logit[has], teacher_TV[has], 8).sum()
    (0.3 * nll + 0.7 * kl).backward()
    assert loss.total.item() == pytest.approx((0.3 * nll + 0.7 * kl).item(), rel=1e-5)
    assert loss.target_sum.item() == pytest.approx(nll.item(), rel=1e-5)
    assert loss.teacher_sum.item() == pytest.approx(kl.item(), rel=1e-4)
    assert_close_gradients(hidden, head, twin, other)


def test_a_position_may_have_a_target_and_a_teacher() -> None:
    teacher_TV = 3 * torch.randn(33, 90, generator=torch.Generator().manual_seed(2))
    hidden, head = states()
    given = teacher_of(teacher_TV, 8)
    head_loss(hidden, head, targets(), Weights(0.3, 0.7), teacher=given).total.backward()
    twin, other = hidden.detach().requires_grad_(), states()[1]
    logit = twin @ other.weight.T
    nll = functional.cross_entropy(logit, targets(), reduction="sum")
    (0.3 * nll + 0.7 * bucketed(logit, teacher_TV, 8).sum()).backward()
    assert_close_gradients(hidden, head, twin, other)


def test_a_teacher_of_no_position_changes_no_bit() -> None:
    results = []
    nobody = Teacher(torch.zeros(33, 8, dtype=torch.int64), torch.zeros(33, 8),
                     torch.zeros(33, dtype=torch.bool))  # fmt: skip
    for teacher in (None, nobody):
        hidden, head = states()
        loss = head_loss(hidden, head, targets(), Weights(1.0, 5.0), teacher=teacher, chunk=7)
        loss.total.backward()
        results.append((loss.total, hidden.grad, head.weight.grad))
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@pytest.mark.parametrize(
    ("positions", "vocabulary", "asked", "chunk"),
    [(64, 151936, None, 64), (512, 151936, None, 171), (10, 300, 4, 4), (9, 300, 4, 3),
     (0, 300, None, 1), (5, 1 << 30, None, 1)],
)  # fmt: skip
def test_chunks_are_equal_and_hold_what_is_allowed(
    positions: int, vocabulary: int, asked: int | None, chunk: int
) -> None:
    assert module.chunk_for(positions, vocabulary, asked) == chunk
    assert module.logits_nbytes(positions, vocabulary, asked) == 4 * chunk * vocabulary
