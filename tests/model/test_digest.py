from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fourge.model.build import load_model
from fourge.model.digest import digest_of_weights
from fourge.model.source import open_source
from fourge.model.swap import nvfp4_layers, quantize_, scale_groups_of
from tests.conftest import tiny_model


@pytest.fixture
def model(tiny_folder: Callable[..., Path]) -> Path:
    return tiny_folder("qwen3", tied=True)


def test_the_digest_of_weights_stands_for_all_of_them(model: Path) -> None:
    loaded = load_model(open_source(model), dtype=torch.bfloat16)
    digest = digest_of_weights(loaded)
    assert digest == digest_of_weights(load_model(open_source(model), dtype=torch.bfloat16))
    for parameter in loaded.parameters():
        with torch.no_grad():
            parameter.view(-1)[-1] += 1
        assert digest_of_weights(loaded) != digest
        with torch.no_grad():
            parameter.view(-1)[-1] -= 1


def test_the_codes_of_a_layer_are_what_counts_with_its_master_and_without() -> None:
    with_master, codes_only, other = (tiny_model("qwen3") for _ in range(3))
    quantize_(with_master)
    quantize_(codes_only)
    for group in scale_groups_of(codes_only):
        group.keep_codes_only_()
    assert digest_of_weights(with_master) == digest_of_weights(codes_only)
    assert digest_of_weights(other) != digest_of_weights(codes_only)
    layer = next(iter(nvfp4_layers(codes_only).values()))
    layer.codes().packed_RC[-1, -1] ^= 1
    assert digest_of_weights(with_master) != digest_of_weights(codes_only)
