from collections.abc import Callable
from pathlib import Path

import torch

from fourge.model.build import load_model
from fourge.model.digest import digest_of_weights
from fourge.model.source import open_source


def test_the_digest_of_weights_stands_for_all_of_them(
    tiny_folder: Callable[..., Path],
) -> None:
    model = tiny_folder("qwen3", tied=True)
    loaded = load_model(open_source(model), dtype=torch.bfloat16)
    digest = digest_of_weights(loaded)
    assert digest == digest_of_weights(load_model(open_source(model), dtype=torch.bfloat16))
    for parameter in loaded.parameters():
        with torch.no_grad():
            parameter.view(-1)[-1] += 1
        assert digest_of_weights(loaded) != digest
        with torch.no_grad():
            parameter.view(-1)[-1] -= 1
