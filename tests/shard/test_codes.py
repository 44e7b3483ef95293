import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor, nn

from fourge.nvfp4.linear import Nvfp4Linear, ScaleGroup
from fourge.nvfp4.matrix import quantize
from fourge.nvfp4.recipe import FOURGE
from fourge.shard.codes import RowCodes, SharedScales
from fourge.shard.part import rows_of
from tests.shard.stubs import Said


class Largest(Said):
    """Gives every rank the largest of what all of them asked with."""

    def __init__(self, everybody: list[Tensor]) -> None:
        super().__init__(0)
        self._everybody = everybody

    def largest_(self, values: Tensor) -> Tensor:
        self._everybody.append(values.clone())
        return values.copy_(torch.stack(self._everybody).amax(0))


def layers_of(*rows: int) -> list[Nvfp4Linear]:
    torch.manual_seed(sum(rows))
    made = [nn.Linear(32, each, bias=False).bfloat16() for each in rows]
    layers = [Nvfp4Linear(each, scheme="w4a16", backend="dequant") for each in made]
    ScaleGroup(layers, FOURGE)
    return layers


def cut(layers: list[Nvfp4Linear], size: int) -> list[list[RowCodes]]:
    """Every rank's rows of every layer."""
    ranks = []
    for rank in range(size):
        parts = []
        for layer in layers:
            rows = rows_of(layer.out_features, rank, size)
            part = RowCodes(layer, rows)
            part.attach(layer.weight.detach()[rows].clone())
            parts.append(part)
        ranks.append(parts)
    return ranks


def refresh(layers: list[Nvfp4Linear], ranks: list[list[RowCodes]]) -> None:
    said: list[Tensor] = []
    for _ in range(2):  # the second time everybody has heard everybody
        for parts in ranks:
            SharedScales([(layers[0].group, parts)], Largest(said)).refresh()


@given(st.integers(1, 5), st.integers(5, 40), st.integers(5, 40))
def test_rows_quantised_apart_are_the_whole_quantised(size: int, one: int, two: int) -> None:
    assume(all(rows_of(rows, size - 1, size).start < rows for rows in (one, two)))
    layers = layers_of(one, two)
    ranks = cut(layers, size)
    refresh(layers, ranks)
    for index, layer in enumerate(layers):
        parts = [part[index] for part in ranks]
        sent = [part.before(None)[0] for part in parts]
        gathered = torch.cat([s[0] for s in sent]), torch.cat([s[1] for s in sent])
        found = parts[0].after(gathered, None, torch.float32)
        assert found is not None
        weight, inner = found
        expected = layer.codes()
        assert torch.equal(weight.matrix.packed_RC, expected.packed_RC)
        scales = weight.matrix.block_scale_RB.view(torch.uint8)
        assert torch.equal(scales, expected.block_scale_RB.view(torch.uint8))
        assert torch.equal(weight.matrix.tensor_scale, expected.tensor_scale)
        assert (weight.shape, weight.dtype, inner) == (layer.weight.shape, torch.float32, ())


def test_what_is_sent_is_four_and_a_half_bits_a_weight() -> None:
    layers = layers_of(64)
    ranks = cut(layers, 2)
    refresh(layers, ranks)
    ranks[0][0].before(None)
    assert ranks[0][0].sent == 32 * 32 * 9 // 16


def test_a_weight_that_is_gathered_again_is_the_same_object_with_new_codes() -> None:
    layers = layers_of(16)
    ((part,),) = cut(layers, 1)
    refresh(layers, [[part]])
    sent, _ = part.before(None)
    found = part.after(sent, None, torch.bfloat16)
    assert found is not None
    weight = found[0]
    with torch.no_grad():
        part._local.mul_(-3)
    refresh(layers, [[part]])
    again, _ = part.before(None)
    assert part.after(again, None, torch.bfloat16, out=weight) is None
    expected = quantize(part._local)
    assert torch.equal(weight.matrix.packed_RC, expected.packed_RC)
    assert torch.equal(weight.matrix.tensor_scale, expected.tensor_scale)


@pytest.mark.parametrize("written", [False, True])
def test_loaded_codes_are_sent_until_any_rank_s_rows_are_written(written: bool) -> None:
    layers = layers_of(8, 8)
    loaded = [quantize(layer.weight.detach() * 1.7, tensor_scale=torch.tensor(0.125))
              for layer in layers]  # fmt: skip
    layers[0].group.load_codes_(loaded)
    ranks = cut(layers, 2)
    if written:
        with torch.no_grad():
            ranks[1][0]._local[0, 0] += 1
    refresh(layers, ranks)
    assert (ranks[0][1].loaded is None) == written
    assert (ranks[0][1].scale == 0.125).item() != written
    (packed, _), _ = ranks[0][1].before(None)
    assert written or torch.equal(packed, loaded[1].packed_RC[:4])
