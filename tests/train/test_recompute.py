from typing import Any

import pytest
import torch
from torch.nn import functional

from fourge.core.errors import ConfigError
from fourge.nvfp4.kept import Products, keeping, product, reusing
from fourge.optim.schedule import Schedule
from fourge.train.loop import Plan, steps
from fourge.train.loss import Weights
from fourge.train.recompute import RECOMPUTE, Recompute, recompute_
from fourge.train.step import batch_loss
from tests.train.samples import FAMILIES, batch_of, gradients, optimizer_of, prepared, same, values


def trained(how: Recompute, family: str, tied: bool, scheme: str) -> tuple[list[float], Any]:
    model, named = prepared(family, tied=tied, scheme=scheme, recompute=how)
    optimizer = optimizer_of(named)
    plan = Plan(lambda step: [batch_of([14, 9], seed=step)], Schedule("constant", 3))
    return [result.loss for result in steps(model, optimizer, plan)], values(model)


@pytest.mark.parametrize("scheme", ["w4a16", "none"])
@pytest.mark.parametrize(("family", "tied"), FAMILIES)
def test_no_bit_depends_on_what_is_computed_again(family: str, tied: bool, scheme: str) -> None:
    losses, weights = trained("none", family, tied, scheme)
    for how in RECOMPUTE[:2]:
        again, others = trained(how, family, tied, scheme)
        assert losses == again, how
        assert same(weights, others), how


def kept_bytes(how: Recompute) -> int:
    """What autograd holds between forward and backward, weights apart."""
    model, _ = prepared("llama", tied=False, recompute=how)
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    held: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            held[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = batch_loss(model, batch_of([100, 100]), Weights(1.0))
    del loss
    return sum(held.values())


def test_recomputing_blocks_keeps_less_than_keeping_everything() -> None:
    assert kept_bytes("block") < 0.5 * kept_bytes("none")
    assert kept_bytes("light") < 0.85 * kept_bytes("none")


def test_what_a_part_gives_is_not_kept_for_its_second_run() -> None:
    products, rows = Products(), torch.randn(4, 8)
    with keeping(products):
        first = product(lambda: rows @ rows.T)
        last = product(lambda: first @ first)
    products.let_go_of(last.view(2, 2, 4))
    with reusing(products):
        assert torch.equal(product(lambda: rows), first)
        blank = product(lambda: rows)
    assert blank.shape == last.shape
    assert blank.untyped_storage().nbytes() == 4
    products.let_go_of(first)  # not the last: nothing happens
    products.let_go_of(None)
    Products().let_go_of(first)


def count_calls(how: Recompute, name: str) -> int:
    return calls_of(prepared("llama", tied=False, recompute=how)[0], name)


def test_light_is_refused_where_there_is_no_feed_forward_part() -> None:
    model, _ = prepared("llama", tied=False, recompute="none")
    for block in model.model.layers:
        block.feed_forward = block.mlp
        del block.mlp
    with pytest.raises(ConfigError, match="no block of this model has a part named mlp"):
        recompute_(model, "light")


def calls_of(model: Any, name: str) -> int:
    calls = 0

    def watch(*args: Any) -> None:
        nonlocal calls
        calls += 1

    model.get_submodule(name).register_forward_hook(watch)
    batch_loss(model, batch_of([20]), Weights(1.0)).total.backward()
    return calls


@pytest.mark.parametrize(
    ("how", "blocks", "parts"), [("block", 2, 2), ("light", 1, 2), ("none", 1, 1)]
)
def test_a_block_runs_again_or_its_feed_forward_part(
    how: Recompute, blocks: int, parts: int
) -> None:
    assert count_calls(how, "model.layers.0.self_attn") == blocks
    assert count_calls(how, "model.layers.0.mlp.act_fn") == parts


def test_how_to_recompute_can_be_changed() -> None:
    model, _ = prepared("llama", tied=False, recompute="light")
    recompute_(model, "none")
    assert not any("forward" in vars(part) for part in model.modules())
    recompute_(model, "light")
    recompute_(model, "light")  # not a part within a part
    assert calls_of(model, "model.layers.0.mlp.act_fn") == 2


@pytest.mark.parametrize("scheme", ["w4a16", "none"])
@pytest.mark.parametrize(("how", "products"), [("block", 2), ("light", 1), ("none", 1)])
def test_light_recompute_makes_no_product_twice(
    how: Recompute, products: int, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = 0

    def counted(*args: Any) -> torch.Tensor:
        nonlocal made
        made += 1
        return linear(*args)

    linear = functional.linear
    model, _ = prepared("llama", tied=False, recompute=how, scheme=scheme)
    monkeypatch.setattr(functional, "linear", counted)
    batch_loss(model, batch_of([20]), Weights(1.0)).total.backward()
    assert made == products * 14


def test_light_recompute_survives_two_backward_passes() -> None:
    found = []
    for how in ("light", "none"):
        model, _ = prepared("llama", tied=False, recompute=how)
        loss = batch_loss(model, batch_of([20]), Weights(1.0), backward_twice=True).total
        loss.backward(retain_graph=True)
        loss.backward()
        found.append(gradients(model))
    assert same(*found)
