import pytest
import torch
from torch import nn

from fourge.nvfp4.gathered import GatheredWeight
from fourge.nvfp4.linear import Nvfp4Linear
from fourge.nvfp4.matrix import quantize


def gathered() -> GatheredWeight:
    torch.manual_seed(0)
    return GatheredWeight(quantize(torch.randn(8, 32)), torch.float32)


def test_what_fsdp2_makes_a_parameter_of_is_the_same_weight() -> None:
    weight = gathered()
    strided = torch.as_strided(weight, (8, 32), (32, 1), 0)
    parameter = nn.Parameter(strided, requires_grad=True)
    assert isinstance(parameter, GatheredWeight)
    assert isinstance(parameter, nn.Parameter)
    assert parameter.requires_grad
    assert parameter.matrix is weight.matrix
    assert "8, 32" in repr(parameter)


def test_it_has_no_values() -> None:
    with pytest.raises(NotImplementedError, match="codes only"):
        gathered() + 1
    with pytest.raises(NotImplementedError, match="as_strided"):
        torch.as_strided(gathered(), (4, 32), (32, 1), 0)


def test_a_layer_computes_with_it_and_gives_it_a_gradient() -> None:
    linear = nn.Linear(32, 8, bias=False)
    layer = Nvfp4Linear(linear, scheme="w4a16", backend="dequant")
    x = torch.randn(3, 32)
    expected = layer(x)
    expected.square().sum().backward()
    whole = layer.weight.grad
    layer._parameters["weight"] = nn.Parameter(GatheredWeight(layer.codes(), torch.float32))
    y = layer(x)
    y.square().sum().backward()
    assert torch.equal(y, expected)
    assert whole is not None
    assert layer.weight.grad is not None
    assert torch.equal(layer.weight.grad, whole)
