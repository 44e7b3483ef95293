import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional

from fourge.core.errors import ConfigError, FormatError
from fourge.nvfp4.gemm import Scheme
from fourge.nvfp4.linear import Nvfp4Linear, ScaleGroup, calibrating
from fourge.nvfp4.matrix import Nvfp4Matrix, dequantize, fake_quantize, quantize
from fourge.nvfp4.recipe import COMPRESSED_TENSORS, FOURGE, TE


def make(
    rows: int = 8, *, bias: bool = True, scheme: Scheme = "w4a16", seed: int = 0
) -> Nvfp4Linear:
    torch.manual_seed(seed)
    return Nvfp4Linear(nn.Linear(32, rows, bias=bias), scheme=scheme, backend="dequant")


def test_forward_multiplies_by_the_decoded_codes() -> None:
    linear, x = make(), torch.randn(2, 5, 32)
    weight = dequantize(quantize(linear.weight))
    assert torch.equal(linear(x), functional.linear(x, weight, linear.bias))


def test_the_bias_is_added_before_the_one_rounding_to_bf16() -> None:
    linear, x = make().to(torch.bfloat16), torch.randn(50, 32, dtype=torch.bfloat16)
    weight = dequantize(linear.codes(), dtype=torch.bfloat16)
    assert torch.equal(linear(x), functional.linear(x, weight, linear.bias))


@pytest.mark.parametrize("scheme", ["w4a16", "w4a4"])
def test_inputs_of_any_form_work(scheme: Scheme) -> None:
    linear = make(scheme=scheme)
    linear.input_scale = torch.tensor(2.0**-8)
    whole = torch.randn(32, 6)
    for x in (torch.randn(32), whole.t(), torch.randn(2, 0, 32), torch.randn(2, 3, 4, 32)):
        given = x.clone().requires_grad_()
        y = linear(given)
        assert y.shape == (*x.shape[:-1], 8)
        y.sum().backward()
        assert given.grad is not None
        assert given.grad.shape == x.shape
    torch.testing.assert_close(linear(whole.t()), linear(whole.t().contiguous()))


def test_a_second_derivative_is_refused() -> None:
    x = torch.randn(2, 32, requires_grad=True)
    (grad,) = torch.autograd.grad(make()(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


def test_inference_mode_leaves_nothing_behind_that_training_trips_over() -> None:
    linear = make(rows=24)
    with torch.inference_mode():
        linear(torch.randn(3, 32))
    linear(torch.randn(3, 32)).sum().backward()


def test_an_activation_that_is_not_finite_is_called_one() -> None:
    linear = make(scheme="w4a4")
    linear.input_scale = torch.tensor(2.0**-8)
    with pytest.raises(FormatError, match="activation"):
        linear(torch.full((2, 32), float("nan")))


def test_fp4_multiplies_the_codes_that_dequant_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tensor-core product replaced by its definition: the layer around it is the same."""

    def product(activation: Nvfp4Matrix, weight: Nvfp4Matrix, dtype: torch.dtype) -> torch.Tensor:
        return dequantize(activation, dtype=dtype) @ dequantize(weight, dtype=dtype).T

    monkeypatch.setattr("fourge.nvfp4.linear.fp4_matmul", product)
    slow, fast = make(scheme="w4a4"), make(scheme="w4a4")
    fast.backend = "fp4"
    slow.input_scale = fast.input_scale = torch.tensor(2.0**-8)
    x = torch.randn(5, 32)
    torch.testing.assert_close(fast(x), slow(x))
    for linear in (slow, fast):
        linear(x).square().sum().backward()
    torch.testing.assert_close(fast.weight.grad, slow.weight.grad)


def test_gradients_pass_straight_through_to_the_master() -> None:
    linear = make()
    x = torch.randn(2, 5, 32, requires_grad=True)
    plain_x = x.detach().clone().requires_grad_()
    plain = nn.Linear(32, 8)
    plain.weight = nn.Parameter(dequantize(quantize(linear.weight)))
    plain.bias = nn.Parameter(linear.bias.detach().clone())
    upstream = torch.randn(2, 5, 8)
    linear(x).backward(upstream)
    plain(plain_x).backward(upstream)
    for ours, theirs in ((x, plain_x), (linear.weight, plain.weight), (linear.bias, plain.bias)):
        assert ours.grad is not None
        assert theirs.grad is not None
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-6, atol=1e-6)


def test_a_bf16_master_gets_bf16_gradients_and_any_activation_dtype_works() -> None:
    linear = make().to(torch.bfloat16)
    for dtype in (torch.float32, torch.bfloat16):
        linear.weight.grad = None
        y = linear(torch.randn(3, 32, dtype=dtype))
        assert y.dtype is dtype
        y.sum().backward()
        assert linear.weight.grad is not None
        assert linear.weight.grad.dtype is torch.bfloat16


def test_autocast_computes_in_its_dtype() -> None:
    linear = make()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear(torch.randn(3, 32)).dtype is torch.bfloat16


def test_backward_uses_the_codes_of_its_own_forward() -> None:
    linear = make(bias=False)
    x = torch.randn(3, 32, requires_grad=True)
    before = dequantize(linear.codes())
    y = linear(x)
    with torch.no_grad():
        linear.weight.mul_(-3)
    y.backward(torch.ones_like(y))
    torch.testing.assert_close(x.grad, torch.ones_like(y) @ before)


def test_w4a4_rounds_activations_with_the_fixed_scale() -> None:
    linear = make(bias=False, scheme="w4a4")
    x = torch.randn(6, 32) * 3
    with calibrating(linear):
        linear(x)
    assert linear.input_scale is not None
    assert linear.input_scale * 2688 / 2 < x.abs().max() <= linear.input_scale * 2688
    seen = fake_quantize(x, recipe=COMPRESSED_TENSORS, tensor_scale=linear.input_scale)
    expected = functional.linear(seen, dequantize(linear.codes()))
    assert torch.equal(linear(x), expected)
    assert not torch.equal(linear(x), functional.linear(x, dequantize(linear.codes())))


def test_w4a4_gradients_use_what_forward_saw() -> None:
    linear = make(bias=False, scheme="w4a4")
    x = torch.randn(6, 32, requires_grad=True)
    with calibrating(linear), torch.no_grad():
        linear(x)
    upstream = torch.randn(6, 8)
    linear(x).backward(upstream)
    seen = linear.quantized_input(x.detach())
    torch.testing.assert_close(linear.weight.grad, upstream.T @ seen)
    torch.testing.assert_close(x.grad, upstream @ dequantize(linear.codes()))


def test_w4a4_without_calibration_is_refused() -> None:
    with pytest.raises(ConfigError, match="no input scale"):
        make(scheme="w4a4")(torch.randn(2, 32))


def test_calibration_that_reaches_nothing_is_refused_and_undone() -> None:
    linear = make(scheme="w4a4")
    with pytest.raises(ConfigError, match="saw no input"), calibrating(nn.Sequential(linear)):
        pass
    assert linear.observed is None


def test_members_of_a_group_share_the_scale_of_the_largest() -> None:
    small, large = make(seed=1), make(seed=2)
    with torch.no_grad():
        large.weight.mul_(100)
    alone = small.codes().tensor_scale.clone()
    ScaleGroup([small, large], TE)
    assert torch.equal(small.codes().tensor_scale, large.codes().tensor_scale)
    assert small.codes().tensor_scale > alone


def test_a_write_to_one_member_renews_the_other_only_if_the_scale_moved() -> None:
    small, large = make(seed=1), make(seed=2)
    with torch.no_grad():
        large.weight.mul_(100)
    ScaleGroup([small, large], small.group.recipe)
    before = small.codes()
    with torch.no_grad():
        large.weight.mul_(0.999)
    assert small.codes() is before
    with torch.no_grad():
        large.weight.mul_(16)
    assert small.codes() is not before
    assert torch.equal(small.codes().tensor_scale, large.codes().tensor_scale)


@pytest.mark.parametrize("touch", ["copy", "pickle", "look", "move"])
def test_loaded_codes_survive_whatever_writes_nothing(touch: str) -> None:
    linear = make()
    foreign = quantize(torch.randn(8, 32), recipe=TE)
    linear.group.load_codes_([foreign])
    twin = linear
    if touch == "copy":
        twin = copy.deepcopy(linear)
    if touch == "pickle":
        twin = pickle.loads(pickle.dumps(linear))
    if touch == "look":
        linear.weight.data.norm()
    if touch == "move":
        linear.to("cpu").float().share_memory()
    for each in (linear, twin):
        assert torch.equal(each.codes().packed_RC, foreign.packed_RC)
        assert torch.equal(each.codes().tensor_scale, foreign.tensor_scale)


def test_a_write_to_one_member_renews_the_loaded_codes_of_all() -> None:
    """Engines fuse them: they must go on sharing one scale."""
    one, two = make(seed=1), make(seed=2)
    ScaleGroup([one, two], FOURGE)
    foreign = [quantize(torch.randn(8, 32), recipe=TE) for _ in range(2)]
    one.group.load_codes_(foreign)
    assert one.codes() is foreign[0]
    with torch.no_grad():
        two.weight.add_(1)
    assert torch.equal(one.codes().tensor_scale, two.codes().tensor_scale)
    assert one.codes().tensor_scale.frexp()[0] == 0.5


def test_loaded_codes_are_used_until_the_weight_is_written() -> None:
    linear = make()
    foreign = quantize(torch.randn(8, 32), recipe=TE)
    linear.group.load_codes_([foreign])
    assert linear.codes() is foreign
    assert torch.equal(linear.weight, dequantize(foreign))
    with torch.no_grad():
        linear.weight.add_(1)
    assert linear.codes() is not foreign


def test_a_copy_computes_the_same_and_lives_on_its_own() -> None:
    linear = make()
    twin, x = copy.deepcopy(linear), torch.randn(2, 32)
    assert torch.equal(twin(x), linear(x))
    with torch.no_grad():
        twin.weight.mul_(2)
    assert not torch.equal(twin(x), linear(x))


def test_parameters_keep_their_names() -> None:
    assert sorted(name for name, _ in make().named_parameters()) == ["bias", "weight"]
    assert "w4a16" in repr(make())


def test_columns_that_do_not_divide_are_refused() -> None:
    with pytest.raises(FormatError, match="multiple of 16"):
        Nvfp4Linear(nn.Linear(24, 8), scheme="w4a16", backend="dequant")
