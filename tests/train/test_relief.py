import torch

from fourge.model.swap import nvfp4_layers
from fourge.nvfp4 import gemm
from fourge.train.relief import give_back
from tests.train.samples import batch_of, prepared


def codes_in_memory(model: torch.nn.Module) -> int:
    return sum(layer._codes is not None for layer in nvfp4_layers(model).values())


def test_codes_and_scratch_are_given_back_and_made_again_to_the_same_bits() -> None:
    model, _ = prepared("qwen3", tied=True)
    token_BT = batch_of([12]).token_BT
    before = model(token_BT).logits
    assert codes_in_memory(model) == 14
    give_back(model)
    assert codes_in_memory(model) == 0
    assert not gemm._buffers.of
    assert torch.equal(model(token_BT).logits, before)


def test_codes_that_came_from_elsewhere_are_kept() -> None:
    model, _ = prepared("qwen3", tied=True)
    layer = next(iter(nvfp4_layers(model).values()))
    layer.group.load_codes_([member.codes() for member in layer.group.members])
    kept = layer.codes()
    give_back(model)
    assert layer.codes() is kept
