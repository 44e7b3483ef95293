import weakref

import pytest
import torch

from fourge.core.errors import FormatError
from fourge.formats.stored import NVFP4, Stored, in_memory
from fourge.model.swap import nvfp4_layers, quantize_
from fourge.model.tensors import (
    dense_tensors,
    linear_names,
    live_tensors,
    quantized_tensors,
    reporting,
    to_quantize,
    with_dense_in,
)
from fourge.nvfp4.matrix import dequantize, quantize, tensor_scale_for
from fourge.nvfp4.recipe import FOURGE
from tests.conftest import tiny_model

LAYERS = ["a.q_proj", "a.k_proj", "a.v_proj", "a.o_proj"]


def stored() -> tuple[dict[str, Stored], dict[str, torch.Tensor], list[str]]:
    torch.manual_seed(0)
    values: dict[str, torch.Tensor] = {
        f"{n}.weight": torch.randn(4, 32) * 10**i for i, n in enumerate(LAYERS)
    }
    reads: list[str] = []

    def read(name: str) -> torch.Tensor:
        reads.append(name)
        return values[name]

    tensors = {
        n: Stored((4, 32), "f32", 512, lambda n=n: read(n))  # type: ignore[misc]
        for n in values
    }
    return tensors, values, reads


def test_nothing_is_read_before_it_is_asked_for_and_then_once() -> None:
    tensors, _, reads = stored()
    quantized = quantized_tensors(tensors, LAYERS, FOURGE)
    assert reads == []
    assert {s.kind for s in quantized.values()} == {NVFP4}
    for each in quantized.values():
        each.read()
    assert sorted(reads) == sorted(tensors)


@pytest.mark.parametrize("order", [LAYERS[:3], LAYERS[2::-1]])
def test_a_group_shares_its_scale_in_any_order(order: list[str]) -> None:
    tensors, values, _ = stored()
    quantized = quantized_tensors(tensors, LAYERS, FOURGE)
    scale = tensor_scale_for([values[f"{n}.weight"] for n in LAYERS[:3]])
    for name in order:
        matrix = quantized[f"{name}.weight"].matrix()
        assert torch.equal(matrix.tensor_scale, scale)
        expected = quantize(values[f"{name}.weight"], tensor_scale=scale)
        assert torch.equal(matrix.packed_RC, expected.packed_RC)
    alone = quantized["a.o_proj.weight"].matrix()
    assert torch.equal(alone.tensor_scale, tensor_scale_for([values["a.o_proj.weight"]]))


def test_codes_are_given_up_when_they_are_read() -> None:
    tensors, _, _ = stored()
    quantized = quantized_tensors(tensors, LAYERS, FOURGE)
    kept = [weakref.ref(quantized[f"{name}.weight"].matrix().packed_RC) for name in LAYERS]
    assert [ref() for ref in kept] == [None] * len(LAYERS)


def test_a_single_level_has_the_scale_one() -> None:
    tensors, _, _ = stored()
    quantized = quantized_tensors(tensors, LAYERS, FOURGE, single_level=True)
    assert all(s.matrix().tensor_scale.item() == 1 for s in quantized.values())


def test_what_is_nvfp4_already_stays_as_it_is() -> None:
    matrix = quantize(torch.randn(4, 32))
    tensors = {"a.o_proj.weight": in_memory(matrix)}
    assert quantized_tensors(tensors, ["a.o_proj"], FOURGE)["a.o_proj.weight"].read() is matrix


def test_a_weight_that_does_not_divide_or_is_not_finite_is_refused_by_name() -> None:
    odd = {"a.o_proj.weight": in_memory(torch.randn(4, 24))}
    with pytest.raises(FormatError, match=r"a\.o_proj is 4 x 24"):
        quantized_tensors(odd, ["a.o_proj"], FOURGE)
    bad = {"a.o_proj.weight": in_memory(torch.full((4, 32), float("nan")))}
    with pytest.raises(FormatError, match=r"a\.o_proj\.weight has a value that is not finite"):
        quantized_tensors(bad, ["a.o_proj"], FOURGE)["a.o_proj.weight"].read()


def test_dense_form_decodes_and_casts_everything() -> None:
    matrix = quantize(torch.randn(4, 32))
    tensors = {
        "w.weight": in_memory(matrix),
        "w.input_scale": in_memory(torch.tensor(0.5)),
        "n.weight": in_memory(torch.randn(3)),
    }
    dense = dense_tensors(tensors, "bf16")
    assert set(dense) == {"w.weight", "n.weight"}
    assert torch.equal(dense["w.weight"].dense().float(), dequantize(matrix))
    assert dense["n.weight"].dense().dtype is torch.bfloat16
    mixed = with_dense_in(tensors, "bf16")
    assert mixed["w.weight"].kind == NVFP4
    assert mixed["w.input_scale"].kind == "f32"
    assert mixed["n.weight"].kind == "bf16"


def test_each_tensor_is_told_of_when_it_is_read() -> None:
    told: list[str] = []
    tensors = reporting({"a": in_memory(torch.ones(1)), "b": in_memory(torch.ones(1))}, told.append)
    tensors["b"].read()
    assert told == ["b"]


def test_a_live_model_gives_every_parameter() -> None:
    model = tiny_model("qwen3")
    assert len(linear_names(model)) == 15
    assert to_quantize(model, ["lm_head", "q_proj"]) == [
        n for n in linear_names(model) if "q_proj" not in n and n != "lm_head"
    ]
    quantize_(model)
    tensors = live_tensors(model)
    assert set(tensors) == {n for n, _ in model.named_parameters()}
    for name, layer in nvfp4_layers(model).items():
        assert tensors[f"{name}.weight"].read() is layer.codes()


def test_a_tied_head_that_is_quantised_has_codes_of_its_own() -> None:
    model = tiny_model("qwen3", tied=True)
    quantize_(model, keep=["embed_tokens"])
    tensors = live_tensors(model)
    assert tensors["lm_head.weight"].kind == NVFP4
    assert tensors["model.embed_tokens.weight"].kind == "f32"
