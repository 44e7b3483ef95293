"""KL to a teacher, against the formula written out with autograd."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fourge.data.batch import MASKED
from fourge.train.loss import Teacher, Weights, head_loss
from tests.train.samples import states, targets, teacher_of

every_chunk = pytest.mark.parametrize("chunk", [1, 7, None])


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
