import pytest
import torch

from fourge.chat.finite import first_nonfinite, require_finite
from fourge.core.errors import FormatError
from tests.chat.samples import model_for
from tests.conftest import byte_tokenizer


@pytest.mark.parametrize(
    "name",
    ["model.embed_tokens", "model.layers.0.self_attn.v_proj", "model.layers.1.input_layernorm",
     "model.layers.1.mlp.up_proj", "model.norm", "lm_head"],
)  # fmt: skip
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_the_first_layer_that_is_not_finite_is_named(name: str, value: float) -> None:
    model = model_for(byte_tokenizer())
    assert first_nonfinite(model, [1, 2, 3]) is None
    with torch.no_grad():
        model.get_submodule(name).weight.fill_(value)
    assert first_nonfinite(model, [1, 2, 3]) == name
    logits = model(torch.tensor([[1, 2, 3]])).logits
    with pytest.raises(FormatError) as caught:
        require_finite(logits, model, [1, 2, 3])
    assert name in caught.value.why
    assert not any(module._forward_hooks for module in model.modules())


def test_logits_spoiled_by_something_else_are_refused_too() -> None:
    model = model_for(byte_tokenizer())
    with pytest.raises(FormatError) as caught:
        require_finite(torch.tensor([1.0, float("-inf")]), model, [1])
    assert "the cache" in caught.value.why


def test_finite_logits_are_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    require_finite(torch.tensor([1.0, -3e38]), None, [1])
