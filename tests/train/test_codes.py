import pytest
import torch
from torch import Tensor, nn

from fourge.model.swap import nvfp4_layers, quantize_
from fourge.train.codes import CodeWatch
from tests.train.samples import prepared


def network(rows: int = 16) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, rows, bias=False), nn.Linear(32, rows, bias=False))
    quantize_(model, keep=())
    return model


def share(watch: CodeWatch) -> float | None:
    changed, seen = watch.counts()
    return changed / seen if seen else None


def codes_of(model: nn.Module) -> Tensor:
    """Every code of every layer, one an element; minus zero is zero."""
    packed = torch.cat([layer.codes().packed_RC for layer in nvfp4_layers(model).values()])
    codes = torch.stack([packed & 15, packed >> 4], -1)
    return codes.masked_fill(codes == 8, 0)


def test_the_first_look_has_nothing_to_compare_with() -> None:
    watch = CodeWatch(network())
    assert share(watch) is None
    assert share(watch) == 0.0


def test_a_model_without_nvfp4_layers_has_no_codes() -> None:
    watch = CodeWatch(prepared("llama", tied=False, scheme="none")[0])
    assert share(watch) is None
    assert share(watch) is None


@pytest.mark.parametrize("how_many", [1, 40, 512])
def test_the_share_is_that_of_codes_not_of_bytes(how_many: int) -> None:
    model = network()
    watch = CodeWatch(model)
    share(watch)
    weight = next(model.parameters())
    before = codes_of(model)
    with torch.no_grad():
        weight.view(-1)[:how_many].neg_()  # magnitudes stay, and so do the scales
    expected = int((before != codes_of(model)).sum())
    assert 0.8 * how_many - 1 <= expected <= how_many
    assert share(watch) == expected / (2 * 16 * 32)
    assert share(watch) == 0.0


def test_a_master_that_moves_within_its_codes_changes_none() -> None:
    model = network()
    watch = CodeWatch(model)
    share(watch)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + 1e-6)
    assert share(watch) == pytest.approx(0.0, abs=0.002)


def test_of_a_large_layer_sixteen_rows_are_looked_at() -> None:
    model = network(rows=64)
    watch = CodeWatch(model)
    share(watch)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter[::4].neg_()
    found = share(watch)
    assert found is not None
    assert found > 0.9
