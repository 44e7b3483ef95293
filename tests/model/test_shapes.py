"""Named shapes against the published sizes; random models that are whole and reproducible."""

import pytest
import torch
from torch import nn

from fourge.core.errors import ConfigError
from fourge.core.process import resident_bytes
from fourge.model import shapes
from fourge.model.build import empty_model
from fourge.model.shapes import SHAPES, random_model, shape_config
from tests.conftest import tiny_config

PUBLISHED = {
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_has_the_published_number_of_parameters(name: str) -> None:
    before = resident_bytes()
    model = empty_model(shape_config(name), torch.bfloat16)
    assert sum(param.numel() for param in model.parameters()) == PUBLISHED[name]
    assert all(param.is_meta for param in model.parameters())
    assert resident_bytes() - before < 256 << 20


def test_every_published_size_has_a_shape() -> None:
    assert set(SHAPES) == set(PUBLISHED)


@pytest.mark.parametrize("name", ["qwen3-5b", "0.6b", "", "QWEN3-0.6B"])
def test_an_unknown_shape_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(ConfigError, match="no shape") as caught:
        shape_config(name)
    assert repr(name) in caught.value.problem
    assert all(known in caught.value.fix for known in SHAPES)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_weight_of_a_random_model_is_real_noise_of_the_usual_size(
    tied: bool, dtype: torch.dtype
) -> None:
    config = tiny_config("qwen3", tied=tied)
    model = random_model(config, dtype)
    assert not model.training
    for name, param in model.named_parameters(remove_duplicate=False):
        assert isinstance(param, nn.Parameter)
        assert param.device.type == "cpu"
        assert param.dtype == dtype, name
        assert param.requires_grad
        if param.dim() == 1:
            assert (param == 1).all(), name
        else:
            assert param.float().std().item() == pytest.approx(config.initializer_range, rel=0.1)
            assert abs(param.float().mean().item()) < 0.1 * config.initializer_range
    assert (model.lm_head.weight is model.model.embed_tokens.weight) is tied
    assert model(torch.tensor([[1, 2, 3]])).logits.isfinite().all()


def test_the_seed_decides_every_weight() -> None:
    config = tiny_config("llama", tied=False)
    one, two, three = (random_model(config, torch.float32, seed=seed) for seed in (1, 1, 2))
    for name, param in one.named_parameters():
        assert torch.equal(param, two.get_parameter(name))
        assert param.dim() == 1 or not torch.equal(param, three.get_parameter(name))


def test_a_weight_larger_than_the_pool_repeats_it_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shapes, "_POOL", 1000)
    model = random_model(tiny_config("qwen3", tied=True), torch.float32)
    flat = model.model.embed_tokens.weight.detach().flatten()
    pool = flat[:1000]
    assert pool.unique().numel() > 990
    assert torch.equal(flat, pool.repeat(len(flat) // 1000 + 1)[: len(flat)])
