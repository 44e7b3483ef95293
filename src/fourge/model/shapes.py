"""Models by the name of their shape, with random weights: to measure what a size costs.

The sizes are those of the published Qwen3 dense configs.
"""

from typing import Any

import torch
from torch import nn

from fourge.core.errors import ConfigError
from fourge.model.build import empty_model

# hidden, feed-forward, layers, heads, key-value heads, head tied to the embedding
_QWEN3 = {
    "0.6b": (1024, 3072, 28, 16, 8, True),
    "1.7b": (2048, 6144, 28, 16, 8, True),
    "4b": (2560, 9728, 36, 32, 8, True),
    "8b": (4096, 12288, 36, 32, 8, False),
    "14b": (5120, 17408, 40, 40, 8, False),
    "32b": (5120, 25600, 64, 64, 8, False),
}
SHAPES = tuple(f"qwen3-{size}" for size in _QWEN3)
_POOL = 1 << 22  # random numbers made; a larger weight repeats them


def shape_config(name: str) -> Any:
    """The transformers config of a named shape.

    Raises:
        ConfigError: there is no such shape.
    """
    from transformers import AutoConfig

    if name not in SHAPES:
        raise ConfigError(f"There is no shape {name!r}.", fix=f"one of: {', '.join(SHAPES)}")
    hidden, inner, layers, heads, kv_heads, tied = _QWEN3[name.removeprefix("qwen3-")]
    return AutoConfig.for_model(
        "qwen3", hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=128, vocab_size=151936,
        max_position_embeddings=40960, rms_norm_eps=1e-6, rope_theta=1e6,
        tie_word_embeddings=tied, bos_token_id=151643, eos_token_id=151645,
    )  # fmt: skip


def random_model(config: Any, dtype: torch.dtype, *, seed: int = 0) -> Any:
    """A model of this config whose weights are noise of the usual size."""
    model = empty_model(config, dtype)
    generator = torch.Generator().manual_seed(seed)
    pool = torch.randn(_POOL, generator=generator).mul_(config.initializer_range).to(dtype)
    for name, parameter in list(model.named_parameters()):
        parent, _, child = name.rpartition(".")
        value = torch.empty(parameter.shape, dtype=dtype)
        _fill_(value, pool)
        model.get_submodule(parent)._parameters[child] = nn.Parameter(value)
    model.tie_weights()
    return model.eval()


def _fill_(value: torch.Tensor, pool: torch.Tensor) -> None:
    if value.dim() == 1:  # a norm
        value.fill_(1.0)
        return
    flat = value.view(-1)
    for start in range(0, flat.numel(), _POOL):
        flat[start : start + _POOL] = pool[: flat.numel() - start]
