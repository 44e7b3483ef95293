"""A model stored in bf16 that computes in float32 is the float32 model of those weights."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fourge.model.lookup import Lookup
from fourge.model.mixed import (
    MixedLinear,
    activation_dtype,
    compute_ends_in_,
    compute_in_,
)
from fourge.model.swap import nvfp4_layers, quantize_
from fourge.nvfp4.linear import Nvfp4Linear
from tests.conftest import tiny_model

FAMILIES = ["qwen3", "llama", "gemma3_text"]
HALF = 2.0**-8  # bf16's rounding, relative


def pair(family: str, *, tied: bool) -> tuple[Any, Any]:
    """The mixed model, and the float32 model with the same numbers."""
    stored = tiny_model(family, tied=tied, dtype=torch.bfloat16)
    exact = copy.deepcopy(stored).float()
    compute_in_(stored, torch.float32)
    return stored, exact


def tokens() -> Tensor:
    return torch.randint(0, 256, (2, 12), generator=torch.Generator().manual_seed(3))


def backward(model: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits, and the gradient of every parameter."""
    output = model(input_ids=tokens(), labels=tokens())
    output.loss.backward()
    grads = {name: param.grad for name, param in model.named_parameters()}
    assert all(grad is not None for grad in grads.values())
    return output.logits, grads


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_gradients_are_those_of_the_float32_model(family: str, tied: bool) -> None:
    stored, exact = pair(family, tied=tied)
    mixed_logits, mixed = backward(stored)
    exact_logits, wanted = backward(exact)
    assert mixed_logits.dtype == torch.float32
    torch.testing.assert_close(mixed_logits, exact_logits, rtol=1e-5, atol=1e-5)
    assert mixed.keys() == wanted.keys()
    for name, grad in mixed.items():
        assert grad.dtype == torch.bfloat16, name
        rounded = wanted[name].bfloat16().float()
        if (tied and "embed" in name) or family == "gemma3_text":
            # Two gradients of a tied weight are rounded, each and their sum; and Gemma's embedding
            # is its own, which rounds what comes from each token.
            largest = wanted[name].abs().amax().item()
            torch.testing.assert_close(grad.float(), rounded, rtol=3 * HALF, atol=HALF * largest)
        else:
            torch.testing.assert_close(grad.float(), rounded, rtol=2 * HALF, atol=1e-6)
            assert (grad.float() == rounded).float().mean() > 0.99, name


@pytest.mark.parametrize("family", FAMILIES)
def test_plain_bf16_would_be_much_less_exact(family: str) -> None:
    stored, exact = pair(family, tied=False)
    plain = tiny_model(family, dtype=torch.bfloat16)
    with torch.no_grad():
        one, two, true = (m(tokens()).logits.float() for m in (stored, plain, exact))
    assert (two - true).abs().max() > 1e-3
    assert (one - true).abs().max() < 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_the_last_dtype_counts(family: str) -> None:
    model, direct = (tiny_model(family, dtype=torch.bfloat16) for _ in range(2))
    compute_in_(direct, torch.float32)
    for dtype in (torch.bfloat16, torch.float32, torch.bfloat16, torch.float32):
        compute_in_(model, dtype)
        assert activation_dtype(model) == dtype
        assert model(tokens()).logits.dtype == dtype
    assert torch.equal(model(tokens()).logits, direct(tokens()).logits)


def forms(model: Any) -> dict[str, type[nn.Module]]:
    return {name: type(module) for name, module in model.named_modules()}


@pytest.mark.parametrize("family", FAMILIES)
def test_doing_it_twice_is_doing_it_once(family: str) -> None:
    once, _ = pair(family, tied=False)
    twice, _ = pair(family, tied=False)
    compute_in_(twice, torch.float32)
    assert forms(once) == forms(twice)
    assert len(twice.get_input_embeddings()._forward_hooks) == 1
    assert torch.equal(once(tokens()).logits, twice(tokens()).logits)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_parameters_stay_the_same_objects_under_their_names(family: str, tied: bool) -> None:
    model = tiny_model(family, tied=tied, dtype=torch.bfloat16)
    before, keys = dict(model.named_parameters()), list(model.state_dict())
    compute_in_(model, torch.float32)
    after = dict(model.named_parameters())
    assert list(before) == list(after)
    assert all(after[name] is param for name, param in before.items())
    assert list(model.state_dict()) == keys
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    assert (head.weight is embedding.weight) is tied
    assert isinstance(embedding, Lookup) or family == "gemma3_text"  # whose embedding scales
    assert not any(type(module) is nn.Linear for module in model.modules())


@pytest.mark.parametrize("family", FAMILIES)
def test_generation_is_that_of_the_float32_model(family: str) -> None:
    stored, exact = pair(family, tied=True)
    prompt = tokens()[:, :5]
    settings = {"max_new_tokens": 6, "do_sample": False, "attention_mask": torch.ones_like(prompt)}
    assert torch.equal(stored.generate(prompt, **settings), exact.generate(prompt, **settings))


@pytest.mark.parametrize("first", ["quantize", "mix"])
def test_layers_may_be_quantised_before_or_after(first: str) -> None:
    model = tiny_model("qwen3", dtype=torch.bfloat16)
    reference = copy.deepcopy(model).float()
    quantize_(reference)
    if first == "quantize":
        quantize_(model)
    compute_in_(model, torch.float32)
    if first == "mix":
        quantize_(model)
    assert nvfp4_layers(model).keys() == nvfp4_layers(reference).keys()
    assert type(model.lm_head) is MixedLinear
    assert isinstance(model.model.layers[0].mlp.up_proj, Nvfp4Linear)
    torch.testing.assert_close(
        model(tokens()).logits, reference(tokens()).logits, rtol=1e-5, atol=1e-5
    )


def test_a_float32_model_is_not_changed_by_computing_in_float32() -> None:
    model = tiny_model("qwen3")
    expected = model(tokens()).logits
    compute_in_(model, torch.float32)
    assert torch.equal(model(tokens()).logits, expected)


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_has_the_gradients_of_a_float32_one_and_keeps_no_copy(bias: bool) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(24, 10, bias=bias).bfloat16()
    exact = copy.deepcopy(linear).float()
    mixed = MixedLinear(linear)
    assert mixed.weight is linear.weight
    assert mixed.training == linear.training
    inputs = [torch.randn(3, 7, 24, generator=torch.Generator().manual_seed(1)) for _ in range(2)]
    saved: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        outputs = mixed(inputs[0].requires_grad_())
    assert [t.dtype for t in saved if t.numel() == 240] == [torch.bfloat16]
    expected = exact(inputs[1].requires_grad_())
    torch.testing.assert_close(outputs, expected)
    outputs.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
    for one, two in zip(mixed.parameters(), exact.parameters(), strict=True):
        assert one.grad is not None
        assert two.grad is not None
        torch.testing.assert_close(one.grad.float(), two.grad, rtol=HALF, atol=1e-4)


def test_a_frozen_weight_gets_no_gradient_and_a_frozen_input_none_either() -> None:
    mixed = MixedLinear(nn.Linear(8, 4, bias=False).bfloat16())
    mixed.weight.requires_grad_(False)
    x = torch.randn(2, 8, requires_grad=True)
    mixed(x).sum().backward()
    assert mixed.weight.grad is None
    assert x.grad is not None
    mixed.weight.requires_grad_(True)
    mixed(x.detach()).sum().backward()
    assert mixed.weight.grad is not None


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("rows", [1, 5, 100])
def test_ends_alone_can_be_narrow(tied: bool, rows: int) -> None:
    narrow = tiny_model("qwen3", tied=tied, dtype=torch.float32)
    ends = {narrow.get_input_embeddings(), narrow.get_output_embeddings()}
    for module in ends:
        module.weight.data = module.weight.data.bfloat16()
    exact = copy.deepcopy(narrow).float()
    compute_ends_in_(narrow, torch.float32)
    assert activation_dtype(narrow) == activation_dtype(exact) == torch.float32
    token_BT = torch.randint(0, 256, (1, rows), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        ours, theirs = narrow(token_BT).logits, exact(token_BT).logits
    assert ours.dtype == torch.float32
    assert (ours - theirs).abs().max() <= 1e-5 * theirs.abs().max()


def test_an_embedding_of_its_own_kind_is_left_alone() -> None:
    model = tiny_model("gemma3_text", tied=True, dtype=torch.float32)
    embedding = model.get_input_embeddings()
    compute_ends_in_(model, torch.float32)
    assert model.get_input_embeddings() is embedding
    assert type(model.get_output_embeddings()) is MixedLinear


def test_a_head_with_a_bias_adds_it() -> None:
    linear = nn.Linear(32, 7).bfloat16()
    x = torch.randn(3, 32)
    with torch.no_grad():
        expected = nn.functional.linear(x, linear.weight.float(), linear.bias.float())
        ours = MixedLinear(linear, is_head=True)(x)
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)
