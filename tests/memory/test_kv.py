import torch
from transformers import DynamicCache

from fourge.memory.kv import kv_nbytes
from tests.conftest import tiny_config, tiny_model


def test_it_is_the_size_of_transformers_own_cache() -> None:
    cache = DynamicCache()
    model = tiny_model("qwen3")
    model(input_ids=torch.zeros(3, 10, dtype=torch.int64), past_key_values=cache, use_cache=True)
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    config = tiny_config("qwen3", tied=True)
    assert kv_nbytes(config, 10, batch=3, dtype=torch.float32) == held
    assert kv_nbytes(config, 10, batch=3, dtype=torch.bfloat16) == held // 2
