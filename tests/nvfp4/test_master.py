"""A stale code cannot be used: every way to write a weight changes its version."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from fourge.nvfp4.linear import Nvfp4Linear
from fourge.nvfp4.master import MasterWeight, adopt
from fourge.nvfp4.matrix import quantize


def layer() -> Nvfp4Linear:
    torch.manual_seed(0)
    return Nvfp4Linear(nn.Linear(32, 8, bias=False), scheme="w4a16", backend="dequant")


def optimizer_step(
    make: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
) -> Callable[[Nvfp4Linear], None]:
    def write(linear: Nvfp4Linear) -> None:
        optimizer = make([linear.weight])
        linear(torch.randn(4, 32)).square().sum().backward()
        optimizer.step()

    return write


def load(linear: Nvfp4Linear) -> None:
    linear.load_state_dict({"weight": torch.randn(8, 32)})


def no_grad_add(linear: Nvfp4Linear) -> None:
    with torch.no_grad():
        linear.weight.add_(0.5)


def through_data(linear: Nvfp4Linear) -> None:
    linear.weight.data.mul_(-1)


def new_data(linear: Nvfp4Linear) -> None:
    linear.weight.data = torch.randn(8, 32)


def through_detach(linear: Nvfp4Linear) -> None:
    linear.weight.detach()[3] = 1.0


def new_parameter(linear: Nvfp4Linear) -> None:
    linear.weight = nn.Parameter(torch.randn(8, 32))


def new_master(linear: Nvfp4Linear) -> None:
    linear.weight = adopt(nn.Parameter(torch.randn(8, 32)))


def index_copy(linear: Nvfp4Linear) -> None:
    with torch.no_grad():
        linear.weight[2:4] = torch.randn(2, 32)


def foreach(linear: Nvfp4Linear) -> None:
    with torch.no_grad():
        torch._foreach_add_([linear.weight], 1.0)


def behind_torchs_back(linear: Nvfp4Linear) -> None:
    linear.weight.detach().numpy()[:] = 0.25
    assert isinstance(linear.weight, MasterWeight)
    linear.weight.written_()


def cast(linear: Nvfp4Linear) -> None:
    linear.to(torch.float64).to(torch.float16)


WRITES: dict[str, Callable[[Nvfp4Linear], None]] = {
    "sgd": optimizer_step(lambda p: torch.optim.SGD(p, lr=1.0)),
    "adamw": optimizer_step(lambda p: torch.optim.AdamW(p, lr=1.0)),
    "adamw foreach": optimizer_step(lambda p: torch.optim.AdamW(p, lr=1.0, foreach=True)),
    "adamw fused": optimizer_step(lambda p: torch.optim.AdamW(p, lr=1.0, fused=True)),
    "load_state_dict": load,
    "in place": no_grad_add,
    ".data in place": through_data,
    ".data replaced": new_data,
    "a detached view": through_detach,
    "a new parameter": new_parameter,
    "a new master": new_master,
    "some rows": index_copy,
    "foreach": foreach,
    "numpy, announced": behind_torchs_back,
    "a cast": cast,
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_a_stale_code_cannot_be_used(write: Callable[[Nvfp4Linear], None]) -> None:
    linear = layer()
    stale = linear.codes()
    write(linear)
    fresh = linear.codes()
    expected = quantize(linear.weight)
    assert fresh is not stale
    assert torch.equal(fresh.packed_RC, expected.packed_RC)
    assert torch.equal(fresh.block_scale_RB.float(), expected.block_scale_RB.float())


def test_codes_are_made_once_per_version(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def counting(*args: object, **kwargs: object) -> object:
        made.append(1)
        return quantize(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr("fourge.nvfp4.linear.quantize", counting)
    linear = layer()
    x = torch.randn(3, 32, requires_grad=True)
    for _ in range(5):
        linear(x)
    torch.utils.checkpoint.checkpoint(linear, x, use_reentrant=False).sum().backward()
    assert len(made) == 1
    no_grad_add(linear)
    linear(x)
    linear(x)
    assert len(made) == 2


def test_a_parameter_is_adopted_in_place() -> None:
    parameter = nn.Parameter(torch.randn(4, 16))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    master = adopt(parameter)
    assert master is parameter
    assert adopt(master) is master
    assert optimizer.param_groups[0]["params"][0] is master
    assert isinstance(copy.deepcopy(master), MasterWeight)


def test_reading_alone_changes_no_version() -> None:
    master = adopt(nn.Parameter(torch.randn(4, 16)))
    version = master.version
    (master * 2).sum().backward()
    master.abs().max()
    assert master.version == version


def test_a_plain_parameter_put_in_place_is_watched_from_then_on() -> None:
    linear = layer()
    linear.weight = nn.Parameter(torch.randn(8, 32))
    assert linear.codes() is linear.codes()
    assert isinstance(pickle.loads(pickle.dumps(linear)).weight, nn.Parameter)
    again = pickle.loads(pickle.dumps(linear))
    assert again.codes() is again.codes()
    no_grad_add(again)
    assert torch.equal(again.codes().packed_RC, quantize(again.weight).packed_RC)


def test_while_an_alias_is_alive_nothing_is_kept() -> None:
    linear = layer()
    alias = linear.weight.data
    linear.codes()
    alias.add_(1)  # counted nowhere
    assert torch.equal(linear.codes().packed_RC, quantize(linear.weight).packed_RC)
    flat = torch.randn(256)
    linear.weight.data = flat.view(8, 32)  # as sharded trainers do
    linear.codes()
    flat.mul_(-2)
    assert torch.equal(linear.codes().packed_RC, quantize(linear.weight).packed_RC)
    del alias, flat
    assert linear.codes() is linear.codes()


def test_parameters_that_follow_each_other_at_one_address_are_told_apart() -> None:
    linear = layer()
    for _ in range(50):
        linear.weight = adopt(nn.Parameter(torch.randn(8, 32)))
        assert torch.equal(linear.codes().packed_RC, quantize(linear.weight).packed_RC)


def test_every_group_of_an_optimizer_counts() -> None:
    one, two = layer(), layer()
    groups: list[dict[str, Any]] = [{"params": [one.weight]}, {"params": [two.weight], "lr": 0.5}]
    optimizer = torch.optim.AdamW(groups, lr=1.0, fused=True)
    (one(torch.randn(4, 32)) + two(torch.randn(4, 32))).square().sum().backward()
    stale = one.codes(), two.codes()
    optimizer.step()
    assert one.codes() is not stale[0]
    assert two.codes() is not stale[1]


def test_a_layer_made_for_inference_still_computes() -> None:
    with torch.inference_mode():
        linear = layer()
        linear(torch.randn(2, 32))
    with torch.no_grad():
        linear(torch.randn(2, 32))
