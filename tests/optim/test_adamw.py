"""AdamW as an optimizer: against torch's own, cut in any way, released or not, misused."""

import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fourge.core.errors import ConfigError, DivergedError
from fourge.nvfp4.master import adopt
from fourge.nvfp4.matrix import quantize
from fourge.nvfp4.packed import PackedWeight
from fourge.optim.adamw import AdamW
from fourge.optim.masters import MasterFormat
from fourge.optim.moments import MomentFormat


def network(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(1)
    # Fewer blocks than are compiled: tests/optim/test_kernel.py holds both forms together.
    return nn.Sequential(nn.Linear(128, 48), nn.Tanh(), nn.Linear(48, 40)).to(dtype)


def loss_of(model: nn.Module, step: int) -> Tensor:
    generator = torch.Generator().manual_seed(step)
    dtype = next(model.parameters()).dtype
    x = torch.randn(16, 128, generator=generator).to(dtype)
    loss: Tensor = (model(x).float() - x.float()[:, :40]).square().mean()
    return loss


def weight_of(model: nn.Module, name: str) -> nn.Parameter:
    return model.get_parameter(name)


def weights(model: nn.Module) -> list[Tensor]:
    return [param.detach().clone() for param in model.parameters()]


def trained(
    *, steps: int = 6, release: bool = False, master: MasterFormat = "bf16", **settings: Any
) -> tuple[list[Tensor], AdamW]:
    model = network(torch.float32 if master == "fp32" else torch.bfloat16)
    optimizer = AdamW(model.named_parameters(), lr=3e-3, master=master, **settings)
    for step in range(steps):
        if release:
            optimizer.backward(loss_of(model, step))
        else:
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
    return weights(model), optimizer


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_exact_formats_equal_torch_s_adamw(weight_decay: float) -> None:
    ours, theirs = network(), network()
    one = AdamW(ours.named_parameters(), lr=1e-3, betas=(0.9, 0.999), weight_decay=weight_decay,
                master="fp32", moments="fp32")  # fmt: skip
    two = torch.optim.AdamW(theirs.parameters(), lr=1e-3, weight_decay=weight_decay)
    for step in range(200):
        for model, optimizer in ((ours, one), (theirs, two)):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
    for mine, other in zip(weights(ours), weights(theirs), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("moments", ["fp32", "int8", "nvfp4"])
@pytest.mark.parametrize("master", ["bf16", "bf16+8", "fp32"])
def test_no_bit_depends_on_the_chunks_or_on_release(
    master: MasterFormat, moments: MomentFormat
) -> None:
    whole, _ = trained(master=master, moments=moments)
    for settings in (
        {"chunk_rows": 1},
        {"chunk_rows": 7},
        {"release": True},
        {"release": True, "chunk_rows": 5},
    ):
        other, _ = trained(master=master, moments=moments, **settings)
        assert all(torch.equal(a, b) for a, b in zip(whole, other, strict=True)), settings


def test_two_passes_clip_by_the_same_exact_norm_as_a_step_does() -> None:
    stepped, one = trained(clip=0.05)
    released, two = trained(clip=0.05, clip_method="two-pass", release=True)
    free, _ = trained()
    assert all(torch.equal(a, b) for a, b in zip(stepped, released, strict=True))
    assert not torch.equal(stepped[0], free[0])
    assert one.grad_norm == pytest.approx(two.grad_norm, rel=1e-6)


def test_the_norm_is_torch_s() -> None:
    model = network()
    optimizer = AdamW(model.named_parameters(), master="fp32", moments="fp32", clip=1.0)
    loss_of(model, 0).backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    expected = torch.nn.utils.get_total_norm(grads)
    optimizer.step()
    assert optimizer.grad_norm == pytest.approx(expected.item(), rel=1e-6)


def test_clipping_scales_the_gradients_as_torch_s_does() -> None:
    ours, theirs = network(), network()
    one = AdamW(ours.named_parameters(), lr=1e-2, master="fp32", moments="fp32", clip=0.03)
    two = torch.optim.AdamW(theirs.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.0)
    for step in range(20):
        for model, optimizer in ((ours, one), (theirs, two)):
            optimizer.zero_grad()
            (loss_of(model, step) * (1 + step)).backward()
            if optimizer is two:
                torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.03)
            optimizer.step()
    for mine, other in zip(weights(ours), weights(theirs), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


def test_tensor_clipping_holds_a_spike_down_to_the_tensor_s_own_past() -> None:
    def moved(spike: float, clip: float | None) -> float:
        model = network()
        optimizer = AdamW(model.named_parameters(), lr=1e-3, master="fp32", moments="fp32",
                          clip=clip)  # fmt: skip
        for step in range(10):
            optimizer.backward(loss_of(model, step) * (spike if step == 9 else 1.0))
        return max(float(state["v"].amax()) for state in optimizer.state.values())

    assert moved(1e3, 1e3) < 4 * moved(1.0, 1e3)
    assert moved(1e3, None) > 1e3 * moved(1.0, None)


def test_accumulation_without_release_is_torch_s() -> None:
    model = network(torch.bfloat16)
    optimizer = AdamW(model.named_parameters(), lr=1e-2)
    loss_of(model, 0).backward()
    loss_of(model, 1).backward()
    expected = [(p.grad.clone() if p.grad is not None else None) for p in model.parameters()]
    optimizer.step()
    assert all(torch.equal(p.grad, e) for p, e in zip(model.parameters(), expected, strict=True))  # type: ignore[arg-type]


def test_a_second_backward_in_a_released_step_is_refused() -> None:
    model = network()
    optimizer = AdamW(model.named_parameters(), master="fp32")

    def twice() -> None:
        with optimizer.released():
            loss_of(model, 0).backward()
            loss_of(model, 1).backward()

    with pytest.raises(ConfigError, match="second gradient"):
        twice()
    with pytest.raises(DivergedError, match="between two steps"):
        optimizer.step()


def test_a_parameter_without_a_gradient_is_refused() -> None:
    model = network()
    spare = nn.Parameter(torch.zeros(4))
    named = [*model.named_parameters(), ("spare", spare)]
    optimizer = AdamW(named, master="fp32")
    with pytest.raises(ConfigError, match="1 of 5 parameters got no gradient; the first is spare"):
        optimizer.backward(loss_of(model, 0))


def test_a_gradient_that_is_there_already_is_refused() -> None:
    model = network()
    optimizer = AdamW(model.named_parameters(), master="fp32")
    before = weights(model)
    loss_of(model, 0).backward()
    with pytest.raises(ConfigError, match="has a gradient already"):
        optimizer.backward(loss_of(model, 0))
    assert all(torch.equal(a, b) for a, b in zip(before, weights(model), strict=True))


def test_gradients_are_freed_and_one_lives_at_a_time() -> None:
    model = network()
    optimizer = AdamW(model.named_parameters(), master="fp32")
    alive = []

    def look(param: Tensor) -> None:
        alive.append(sum(p.grad is not None for p in model.parameters()))

    for param in model.parameters():
        param.register_post_accumulate_grad_hook(look)  # before the optimizer's own
    optimizer.backward(loss_of(model, 0))
    assert alive == [1, 1, 1, 1]
    assert all(param.grad is None for param in model.parameters())


def test_two_pass_clipping_without_the_first_pass_is_refused() -> None:
    model = network()
    optimizer = AdamW(model.named_parameters(), master="fp32", clip=1.0, clip_method="two-pass")
    with pytest.raises(ConfigError, match="first pass"), optimizer.released():
        loss_of(model, 0).backward()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_changes_no_weight(bad: float) -> None:
    model = network(torch.bfloat16)
    optimizer = AdamW(model.named_parameters())
    before = weights(model)
    loss_of(model, 0).backward()
    weight_of(model, "2.weight").grad[3, 3] = bad  # type: ignore[index]
    with pytest.raises(DivergedError, match=r"gradient of 2\.weight is not finite"):
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(before, weights(model), strict=True))
    assert not optimizer.state


def test_a_released_gradient_that_is_not_finite_stops_the_tensors_after_it() -> None:
    model = network()
    optimizer = AdamW(model.named_parameters(), master="fp32", lr=1e-2)
    before = weights(model)

    def spoil(grad: Tensor) -> Tensor:
        return grad * float("nan")

    weight_of(model, "0.weight").register_hook(spoil)
    weight_of(model, "0.bias").register_hook(spoil)
    with pytest.raises(DivergedError, match=r"0\.(weight|bias) is not finite"):
        optimizer.backward(loss_of(model, 0))
    after = weights(model)
    assert torch.equal(before[0], after[0])
    assert torch.equal(before[1], after[1])
    assert not torch.equal(before[2], after[2])
    with pytest.raises(DivergedError, match="between two steps"):
        optimizer.backward(loss_of(model, 1))


def test_a_group_s_learning_rate_is_real_and_a_gradient_multiplier_does_nothing() -> None:
    """Under Adam a multiplied gradient gives the same step; a multiplied rate does not."""

    def movement(multiplier: float, lr: float) -> Tensor:
        model = network()
        weight = weight_of(model, "0.weight")
        groups = [{"params": [("0.weight", weight)], "lr": lr}]
        optimizer = AdamW(groups, master="fp32", moments="fp32", eps=1e-30)
        before = weight.detach().clone()
        for step in range(3):
            optimizer.zero_grad()
            (loss_of(model, step) * multiplier).backward()
            optimizer.step()
        return (weight.detach() - before).abs().mean()

    plain = movement(1.0, 1e-3)
    torch.testing.assert_close(movement(0.01, 1e-3), plain, rtol=0.02, atol=0)
    assert movement(1.0, 1e-4) < 0.2 * plain


def test_a_scheduler_s_rate_is_used() -> None:
    model = network()
    optimizer = AdamW(model.named_parameters(), lr=1e-2, master="fp32")
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0)
    before = weights(model)
    loss_of(model, 0).backward()
    optimizer.step()
    scheduler.step()
    assert all(torch.equal(a, b) for a, b in zip(before, weights(model), strict=True))


@pytest.mark.parametrize("moments", ["fp32", "int8", "nvfp4"])
def test_a_saved_state_continues_bit_for_bit(moments: MomentFormat, tmp_path: Any) -> None:
    def run(stop: int | None) -> list[Tensor]:
        model = network(torch.bfloat16)
        optimizer = AdamW(model.named_parameters(), lr=3e-3, master="bf16+8", moments=moments,
                          clip=1.0)  # fmt: skip
        for step in range(8):
            if step == stop:
                torch.save((model.state_dict(), optimizer.state_dict()), tmp_path / "state")
                model = network(torch.bfloat16)
                optimizer = AdamW(model.named_parameters(), lr=1.0, master="bf16+8",
                                  moments=moments, clip=1.0)  # fmt: skip
                saved = torch.load(tmp_path / "state", weights_only=True)
                model.load_state_dict(saved[0])
                optimizer.load_state_dict(saved[1])
            optimizer.backward(loss_of(model, step))
        return weights(model)

    assert all(torch.equal(a, b) for a, b in zip(run(None), run(4), strict=True))


def test_a_master_of_another_dtype_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"0\.weight is bfloat16, which master fp32 cannot be"):
        AdamW(network(torch.bfloat16).named_parameters(), master="fp32")
    with pytest.raises(ConfigError, match="float16, which master bf16 cannot be"):
        AdamW(network(torch.float16).named_parameters())
    packed = [("w", PackedWeight(quantize(torch.randn(16, 64))))]
    with pytest.raises(ConfigError, match="w is packed, which master bf16 cannot be"):
        AdamW(packed)


@pytest.mark.parametrize(
    "settings",
    [
        {"master": "fp16"}, {"moments": "fp8"}, {"clip": 0.0}, {"clip_method": "global"},
        {"chunk_rows": 0}, {"betas": (0.9, 1.0)}, {"betas": (0.99, 0.9)}, {"eps": -1.0},
        {"lr": -1.0}, {"weight_decay": -0.1}, {"eps": 0.0},
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        AdamW(network(torch.bfloat16).named_parameters(), **settings)


def test_a_weight_in_a_strange_layout_is_refused() -> None:
    weight = nn.Parameter(torch.randn(64, 96).bfloat16().t())
    weight.grad = torch.randn(96, 64).bfloat16()
    with pytest.raises(ConfigError, match="parameter 0 is not contiguous"):
        AdamW([weight]).step()


def test_a_trained_master_weight_has_a_new_version() -> None:
    weight = adopt(nn.Parameter(torch.randn(64, 64).bfloat16()))
    version, weight.grad = weight.version, torch.ones(64, 64).bfloat16()
    AdamW([weight]).step()
    assert weight.version != version


@pytest.mark.parametrize("lr", [1e-6, 1e-5, 1e-4, 1e-3])
@pytest.mark.parametrize("master", ["bf16", "nvfp4"])
def test_what_is_asked_for_is_what_moves(
    master: MasterFormat, lr: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mean step along its own direction, against nearest rounding of the same updates."""
    torch.manual_seed(0)
    rows, columns = 4096, 1024
    start = torch.randn(rows, columns) * 0.02
    sign = torch.where(torch.rand(rows, columns) < 0.5, -1.0, 1.0)
    matrix = quantize(start, tensor_scale=torch.tensor(2.0**-12))
    if master == "nvfp4":
        weight: nn.Parameter = PackedWeight(matrix)
    else:
        weight = nn.Parameter(start.bfloat16())
    before = value_of(weight)
    optimizer = AdamW([("w", weight)], lr=lr, master=master, moments="fp32")
    steps = max(4, int(1e-5 / lr))  # enough events to count
    for _ in range(steps):
        weight.grad = sign.bfloat16()
        optimizer.step()
    asked = lr * steps
    realised = -((value_of(weight) - before) * sign).double().mean().item() / asked
    nearest = nearest_movement(weight, before, matrix, sign * lr) / lr
    with capsys.disabled():
        sys.stdout.write(
            f"\n  {master} lr {lr:g}: asked 1, realised {realised:.3f}, nearest {nearest:.3f}\n"
        )
    assert realised == pytest.approx(1.0, abs=0.05)
    if lr <= 1e-5 or master == "nvfp4":
        assert nearest < 0.2


def value_of(weight: nn.Parameter) -> Tensor:
    from fourge.nvfp4.matrix import dequantize

    return (
        dequantize(weight.matrix) if isinstance(weight, PackedWeight) else weight.detach().float()
    )


def nearest_movement(weight: nn.Parameter, before: Tensor, matrix: Any, update: Tensor) -> float:
    """How far one step gets when the result is rounded to nearest."""
    from fourge.nvfp4.matrix import dequantize

    if isinstance(weight, PackedWeight):
        after = dequantize(quantize(before - update, tensor_scale=matrix.tensor_scale))
    else:
        after = (before - update).bfloat16().float()
    return -((after - before) * update.sign()).double().mean().item()


def test_a_state_of_another_format_is_refused() -> None:
    _, packed = trained(steps=1)
    other = AdamW(network(torch.bfloat16).named_parameters(), moments="nvfp4")
    with pytest.raises(ConfigError, match="has int8 moments; this optimizer nvfp4"):
        other.load_state_dict(packed.state_dict())


def test_a_step_that_raises_halfway_says_so_from_then_on() -> None:
    weight = PackedWeight(quantize(torch.randn(16, 64)))
    other = nn.Parameter(torch.randn(16, 64).bfloat16())
    optimizer = AdamW([("first", other), ("packed", weight)], lr=1e3, master="nvfp4")
    for param in (other, weight):
        param.grad = torch.ones(16, 64).bfloat16()
    with pytest.raises(DivergedError, match="packed has grown"):
        optimizer.step()
    with pytest.raises(DivergedError, match="between two steps"):
        optimizer.step()
