"""RMS norm: transformers' bits forward, and better gradients than its own in less memory."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.mistral.modeling_mistral import MistralRMSNorm
from transformers.models.olmo2.modeling_olmo2 import Olmo2RMSNorm
from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from fourge.model import norm as norm_module
from fourge.model.norm import LeanRMSNorm, is_plain, lean_norms_
from tests.conftest import tiny_model

SHAPES = [(1, 200, 64), (2, 7, 3, 48), (5, 24), (1, 64, 16)]  # 24 is no multiple of the lanes
DTYPES = [torch.bfloat16, torch.float32]


def norm_and_lean(width: int, dtype: torch.dtype) -> tuple[Any, Any]:
    norm = LlamaRMSNorm(width, eps=1e-5).to(dtype)
    norm.weight.data.normal_(1.0, 0.3)
    lean = copy.deepcopy(norm)
    lean_norms_(lean)
    assert type(lean) is LeanRMSNorm
    return norm, lean


def gradients(norm: nn.Module, x: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
    """Of the input and the weight."""
    x = x.detach().clone().requires_grad_()
    norm(x).backward(given)
    assert x.grad is not None
    weight: Any = norm.weight
    found = weight.grad
    weight.grad = None
    return x.grad, found


def exact(norm: nn.Module, x: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
    """The same by hand, in float64."""
    x, given, weight = (each.detach().double() for each in (x, given, *norm.parameters()))
    x.requires_grad_()
    weight.requires_grad_()
    (weight * x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()).backward(given)
    assert x.grad is not None
    assert weight.grad is not None
    return x.grad, weight.grad


def error(found: Tensor, right: Tensor) -> float:
    return float((found.double() - right).norm() / right.norm())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_forward_gives_the_bits_of_transformers(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    norm, lean = norm_and_lean(shape[-1], dtype)
    x = 3 * torch.randn(shape, dtype=dtype)
    assert torch.equal(norm(x), lean(x))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("by_kernel", [True, False])
def test_gradients_are_right_and_no_further_off_than_those_of_autograd(
    shape: tuple[int, ...], dtype: torch.dtype, by_kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    norm, lean = norm_and_lean(shape[-1], dtype)
    x, given = torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)
    if not by_kernel:
        monkeypatch.setattr(norm_module, "_kernels", lambda: None)
    right = exact(norm, x, given)
    ours, theirs = gradients(lean, x, given), gradients(norm, x, given)
    for found, usual, value in zip(ours, theirs, right, strict=True):
        assert found.dtype == dtype
        assert error(found, value) <= max(1.05 * error(usual, value), 1e-6)


def test_a_kernel_does_it_where_the_values_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    if norm_module._kernels() is None:
        pytest.skip("no kernels on this machine")
    asked = list[torch.Size]()
    real = norm_module._back_by_kernel

    def noted(x: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
        asked.append(x.shape)
        return real(x, *rest)

    monkeypatch.setattr(norm_module, "_back_by_kernel", noted)
    for width in (48, 24):
        _, lean = norm_and_lean(width, torch.bfloat16)
        x = torch.randn(4, width, dtype=torch.bfloat16)
        gradients(lean, x, x)
    assert asked == [(4, 48)]


@pytest.mark.parametrize("by_kernel", [True, False])
def test_values_may_lie_in_any_order(by_kernel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(2)
    norm, lean = norm_and_lean(32, torch.float32)
    if not by_kernel:
        monkeypatch.setattr(norm_module, "_kernels", lambda: None)
    x, given = (
        torch.randn(2, 9, 5, 32).transpose(1, 2),
        torch.randn(32, 9, 5, 2).permute(3, 2, 1, 0),
    )
    assert not x.is_contiguous()
    for found, usual in zip(gradients(lean, x, given), gradients(norm, x, given), strict=True):
        torch.testing.assert_close(found, usual, rtol=1e-5, atol=1e-5)


def test_the_number_of_threads_changes_no_bit() -> None:
    torch.manual_seed(3)
    _, lean = norm_and_lean(64, torch.bfloat16)
    x, given = (torch.randn(2100, 64, dtype=torch.bfloat16) for _ in range(2))
    threads, found = torch.get_num_threads(), []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        found.append(gradients(lean, x, given))
    torch.set_num_threads(threads)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_the_input_and_a_number_per_token_are_kept() -> None:
    kept = list[Tensor]()
    _, lean = norm_and_lean(64, torch.bfloat16)
    x = torch.randn(10, 64, dtype=torch.bfloat16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda each: each):
        lean(x)
    assert sum(each.nbytes for each in kept) == x.nbytes + lean.weight.nbytes + 10 * 4


@pytest.mark.parametrize("by_kernel", [True, False])
def test_a_row_whose_squares_overflow_has_no_gradient_that_could_be_taken_for_one(
    by_kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, lean = norm_and_lean(32, torch.float32)
    if not by_kernel:
        monkeypatch.setattr(norm_module, "_kernels", lambda: None)
    x = torch.randn(3, 32)
    x[1] *= 1e25
    grad, of_weight = gradients(lean, x, torch.ones(3, 32))
    assert grad.isfinite().all(-1).tolist() == [True, False, True]
    assert of_weight.isnan().all()


def test_a_weight_that_is_not_trained_gets_no_gradient() -> None:
    _, lean = norm_and_lean(32, torch.bfloat16)
    lean.requires_grad_(False)
    x = torch.randn(3, 32, dtype=torch.bfloat16)
    grad, of_weight = gradients(lean, x, x)
    assert grad.isfinite().all()
    assert of_weight is None


@pytest.mark.parametrize("kind", [LlamaRMSNorm, Qwen2RMSNorm, Qwen3RMSNorm, MistralRMSNorm])
def test_a_norm_that_is_one_is_known(kind: Any) -> None:
    assert is_plain(kind)


class OtherRMSNorm(LlamaRMSNorm):  # type: ignore[misc]
    def forward(self, hidden_states: Tensor) -> Any:
        return super().forward(hidden_states) * 1.01


@pytest.mark.parametrize(
    "kind", [Gemma3RMSNorm, Olmo2RMSNorm, OtherRMSNorm, nn.LayerNorm, nn.RMSNorm, nn.Linear]
)
def test_what_computes_something_else_is_left_alone(kind: Any) -> None:
    assert not is_plain(kind)


def test_every_norm_of_a_model_is_found_and_its_parameters_keep_their_names() -> None:
    model = tiny_model("qwen3", tied=True)
    names = [name for name, _ in model.named_parameters()]
    lean_norms_(model)
    kinds = [type(m) for name, m in model.named_modules() if name.endswith("norm")]
    assert len(kinds) == 2 * 4 + 1
    assert set(kinds) == {LeanRMSNorm}
    assert [name for name, _ in model.named_parameters()] == names
