"""Groups with ``every`` learn in their own steps, and cost nothing in the others."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import Tensor

from fourge.optim.adamw import AdamW
from fourge.optim.groups import GroupRule, grouped
from fourge.optim.schedule import Schedule
from fourge.train.loop import Plan, steps
from fourge.train.resting import resting
from tests.train.samples import batch_of, prepared, values

LOWER = "model.layers.0."


def rested(every: int, *, tied: bool = True, **settings: Any) -> tuple[Any, AdamW]:
    model, named = prepared(tied=tied, recompute=settings.pop("recompute", "block"))
    rule = GroupRule((), lower=0.5, every=every)
    return model, AdamW(grouped(named, [rule]), lr=1e-2, **settings)


def written(model: Any, optimizer: AdamW, count: int, **plan: Any) -> Iterator[set[str]]:
    """The names of the parameters that each step wrote to."""
    before = values(model)
    whole = Plan(lambda step: [batch_of([9, 12], seed=step)], Schedule("constant", count), **plan)
    for _ in steps(model, optimizer, whole):
        now = values(model)
        yield {name for name in now if not torch.equal(now[name], before[name])}
        before = now


def lower(names: set[str]) -> set[str]:
    return {name for name in names if name.startswith(LOWER)}


@pytest.mark.parametrize("release", [True, False])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("recompute", ["none", "block"])
def test_lower_layers_learn_in_the_first_of_every_so_many_steps(
    release: bool, tied: bool, recompute: str
) -> None:
    model, optimizer = rested(3, tied=tied, recompute=recompute)
    did = list(written(model, optimizer, 7, release=release))
    assert [bool(lower(names)) for names in did] == [True, False, False] * 2 + [True]
    everything = {name for name, _ in model.named_parameters()}
    assert did[0] == everything
    assert did[1] == everything - lower(everything) - (set() if tied else {EMBEDDING})
    state = {name: optimizer.state[param]["step"] for name, param, _ in optimizer.named()}
    assert {state[name] for name in lower(everything)} == {3}
    assert {state[name] for name in everything - lower(everything)} <= {3, 7}


EMBEDDING = "model.embed_tokens.weight"


@pytest.mark.parametrize("clip_method", ["tensor", "two-pass"])
def test_every_way_of_clipping_waits_for_those_that_learn(clip_method: Any) -> None:
    model, optimizer = rested(2, clip=1.0, clip_method=clip_method)
    did = list(written(model, optimizer, 2, release=True))
    assert [bool(lower(names)) for names in did] == [True, False]


def test_the_rest_gets_the_gradient_that_it_gets_without_resting() -> None:
    model, optimizer = rested(2, tied=False)
    batch = batch_of([9, 12])

    def gradients(step: int) -> dict[str, Tensor]:
        model.zero_grad()
        with resting(model, optimizer, step):
            model(
                batch.token_BT, attention_mask=batch.mask_BT.long()
            ).logits.square().mean().backward()
        return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}

    whole, part = gradients(1), gradients(2)
    assert set(whole) - set(part) == lower(set(whole)) | {EMBEDDING}
    assert all(torch.equal(part[name], whole[name]) for name in part)


def test_a_head_that_is_the_embedding_learns_as_a_head() -> None:
    model, optimizer = rested(2)
    batch = batch_of([9, 12])
    untold = torch.arange(model.config.vocab_size)
    untold = untold[~torch.isin(untold, batch.token_BT)]

    def gradient(step: int) -> Tensor:
        model.zero_grad()
        with resting(model, optimizer, step):
            model(
                batch.token_BT, attention_mask=batch.mask_BT.long()
            ).logits.square().mean().backward()
        grad: Tensor = model.get_input_embeddings().weight.grad.clone()
        return grad

    whole, part = gradient(1), gradient(2)
    assert not torch.equal(whole, part)
    assert torch.equal(whole[untold], part[untold])  # what no token of the text looked up


def test_afterwards_everything_requires_a_gradient_also_after_an_error() -> None:
    model, optimizer = rested(2)
    hooks = len(model.get_input_embeddings()._forward_hooks)
    with suppress(ZeroDivisionError), resting(model, optimizer, 2):
        assert not model.model.layers[0].mlp.up_proj.weight.requires_grad
        raise ZeroDivisionError
    assert all(param.requires_grad for param in model.parameters())
    assert len(model.get_input_embeddings()._forward_hooks) == hooks
