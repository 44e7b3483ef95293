from typing import Any

import pytest
import torch
from torch import Tensor

from fourge.core.errors import DivergedError
from fourge.data.batch import MASKED
from fourge.train import step as module
from fourge.train.loss import Teacher, Weights
from fourge.train.step import batch_loss, require_finite_loss, target_states
from tests.conftest import tiny_model
from tests.train.samples import FAMILIES, batch_of, gradients, labels_of, prepared, their_loss

every_family = pytest.mark.parametrize(("family", "tied"), FAMILIES)


@every_family
def test_padding_changes_nothing(family: str, tied: bool) -> None:
    results = []
    for width in (12, 40):
        model, batch = tiny_model(family, tied=tied), batch_of([12, 12], width=width)
        loss = batch_loss(model, batch, Weights(1 / batch.targets)).total
        loss.backward()
        results.append((loss, gradients(model)))
    (one, exact), (other, padded) = results
    assert one.item() == pytest.approx(other.item(), abs=1e-6)
    for name in exact:
        torch.testing.assert_close(exact[name], padded[name], rtol=1e-4, atol=1e-6, msg=name)


@every_family
def test_a_row_is_scored_alike_alone_and_beside_a_longer_one(family: str, tied: bool) -> None:
    model = tiny_model(family, tied=tied)
    with torch.no_grad():
        alone = target_states(model, batch_of([9]))
        beside = target_states(model, batch_of([9, 25]))
    torch.testing.assert_close(alone, beside[: len(alone)], rtol=1e-4, atol=1e-5)


@every_family
@pytest.mark.parametrize("recompute", ["block", "none"])
def test_a_prepared_model_has_the_gradients_of_transformers(
    family: str, tied: bool, recompute: str
) -> None:
    model, _ = prepared(family, tied=tied, master="fp32", scheme="none", recompute=recompute)
    theirs, batch = tiny_model(family, tied=tied), batch_of([19, 7, 30])
    their_loss(theirs, batch).backward()
    batch_loss(model, batch, Weights(1 / batch.targets)).total.backward()
    reference = gradients(theirs)
    assert gradients(model).keys() == reference.keys()
    for name, grad in gradients(model).items():
        torch.testing.assert_close(grad, reference[name], rtol=1e-4, atol=1e-6, msg=name)


def test_positions_without_a_target_do_not_reach_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = tiny_model("llama"), batch_of([19, 7], share=0.2)
    seen: list[Tensor] = []

    def watch(
        hidden_TH: Tensor, head: Any, target_T: Tensor, weights: Weights, **rest: Any
    ) -> None:
        seen.extend((hidden_TH, target_T))

    def refuse(*args: Any) -> None:
        raise AssertionError("the head made logits")

    monkeypatch.setattr(module, "head_loss", watch)
    model.lm_head.register_forward_hook(refuse)
    batch_loss(model, batch, Weights(1.0))
    hidden_TH, target_T = seen
    assert len(hidden_TH) == len(target_T) == batch.targets < batch.tokens // 2
    mask, labels = batch.mask_BT.long(), labels_of(batch)
    whole = model.base_model(batch.token_BT, attention_mask=mask).last_hidden_state
    before = labels[:, 1:] != MASKED  # a state says what follows it
    torch.testing.assert_close(hidden_TH, whole[:, :-1][before])
    assert torch.equal(target_T, labels[:, 1:][before])


def test_attention_is_told_of_padding_and_only_of_that(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama")
    told: list[Tensor | None] = []

    def watch(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        told.append(kwargs["attention_mask"])

    model.base_model.register_forward_pre_hook(watch, with_kwargs=True)
    padded = batch_of([9, 8])  # so little that the rows are not joined
    target_states(model, batch_of([9, 9]))
    target_states(model, padded)
    assert told[0] is None
    assert told[1] is not None
    assert torch.equal(told[1], padded.mask_BT)


def test_where_there_is_a_teacher_the_target_is_not_learned() -> None:
    model, batch = tiny_model("llama"), batch_of([19, 7])
    has = torch.zeros(batch.targets, dtype=torch.bool)
    has[::2] = True
    with torch.no_grad():
        hidden = target_states(model, batch)
        log_p, token = (hidden @ model.lm_head.weight.T).log_softmax(-1).topk(4)
    target = batch.target_BT[batch.target_BT != MASKED]
    loss = batch_loss(model, batch, Weights(1.0, 1.0), teacher=Teacher(token, log_p, has))
    logit = (hidden @ model.lm_head.weight.T)[~has]
    expected = torch.nn.functional.cross_entropy(logit, target[~has], reduction="sum")
    assert loss.target_sum.item() == pytest.approx(expected.item(), rel=1e-5)
    assert loss.teacher_sum.item() == pytest.approx(0.0, abs=1e-4)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_loss_that_is_not_finite_is_refused_with_what_led_to_it(bad: float) -> None:
    require_finite_loss(1.5, 7, "a.tsv:3", 1e-3)
    with pytest.raises(DivergedError, match=rf"The loss is {bad} at step 7\.") as caught:
        require_finite_loss(bad, 7, "a.tsv:3, b.tsv:1", 1e-3)
    assert "a.tsv:3, b.tsv:1" in caught.value.why
    assert "0.001" in caught.value.why
    assert caught.value.exit_code == 3
