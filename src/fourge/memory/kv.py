"""The key-value cache of generation: what a gate that lets the model speak needs."""

from typing import Any

import torch


def kv_nbytes(config: Any, tokens: int, *, batch: int = 1, dtype: torch.dtype) -> int:
    """Keys and values of every layer, for so many tokens of so many sequences."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    per_token = 2 * int(config.num_hidden_layers) * int(heads) * int(width)
    return per_token * dtype.itemsize * tokens * batch
