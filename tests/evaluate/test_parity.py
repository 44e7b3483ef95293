from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fourge import api
from fourge.core.errors import ConfigError
from fourge.evaluate.parity import Bounds, Parity, differences, likeliest, parity
from fourge.evaluate.sides import two_sides
from fourge.evaluate.trace import Trace
from tests.conftest import byte_tokenizer

Folder = Callable[..., Path]
LOOSE = Bounds(-1, 0)


def made(state: Tensor | None = None, chosen: tuple[int, ...] = (3, 4)) -> Trace:
    state_TH = torch.tensor([[3.0, 4.0], [0.0, 1.0]]) if state is None else state
    logits_TV = torch.arange(24.0).view(2, 12)
    return Trace({"embedding": state_TH}, logits_TV, logits_TV, chosen)


def compared(
    one: str, path: str, against: str | None, bounds: Bounds = LOOSE, tokens: int = 6
) -> Parity:
    sides = two_sides(one, path, against)
    return parity(*sides, "What?", tokens=tokens, bounds=bounds)


def test_a_difference_is_its_largest_its_mean_and_the_cosine_of_each_token() -> None:
    one, other = made(), made(torch.tensor([[4.0, 3.0], [0.0, 9.0]]))
    embedding, logits, said = differences(one, other)
    assert (embedding.place, embedding.largest, embedding.mean) == ("embedding", 8.0, 2.5)
    assert embedding.cosine == pytest.approx((24 / 25 + 1) / 2)
    assert (logits.place, logits.largest, logits.mean) == ("logits", 0.0, 0.0)
    assert logits.cosine == pytest.approx(1.0)
    assert said.place == "said"


def test_models_of_other_shapes_are_refused() -> None:
    wider = made(torch.zeros(2, 3))
    deeper = replace(made(), states={**made().states, "block 0": torch.zeros(2, 2)})
    for other in (wider, deeper):
        for pair in ((made(), other), (other, made())):
            with pytest.raises(ConfigError, match="same shape"):
                differences(*pair)


def test_the_ten_likeliest_come_in_their_order() -> None:
    found = likeliest(made(), byte_tokenizer())
    assert [each.id for each in found] == list(range(11, 1, -1))
    assert (found[0].logit, found[0].text) == (23.0, byte_tokenizer().decode([11]))


@pytest.mark.parametrize("family", ["qwen3", "llama"])
@pytest.mark.parametrize("path", ["train", "packed"])
def test_the_paths_and_plain_transformers_are_equal(
    family: str, path: str, tiny_folder: Folder
) -> None:
    folder = str(tiny_folder(family))
    for against in (None, "transformers"):
        found = compared(folder, path, against)
        assert found.equal
        assert found.failures == ()
        assert all(each.largest == 0 for each in found.places)
        assert (found.agreed, found.parted, found.tokens) == (6, None, 6)
        assert found.top[0] == found.top[1]
    assert found.dtypes == ("bfloat16", "bfloat16")


def test_an_export_is_loaded_by_transformers_as_it_is(tiny_folder: Folder, tmp_path: Path) -> None:
    out = tmp_path / "out"
    api.convert(tiny_folder("qwen3"), out, "compressed-tensors", scheme="w4a4")
    assert compared(str(out), "packed", "transformers").failures == ()
    assert compared(str(out), "train", "packed").failures == ()


def test_another_model_is_not_equal_and_the_first_place_is_named(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    one, other = tiny_folder("qwen3"), tmp_path / "other"
    source = api.open_source(one)
    model = api.load_model(source)
    with torch.no_grad():
        model.base_model.layers[1].mlp.down_proj.weight.mul_(-1)
    api.save(model, other, "safetensors", like=one)
    found = compared(str(one), "dense", str(other))
    assert found.equal
    assert found.failures[0].startswith("block 1 is the first place that differs, by up to")
    assert [each.place for each in found.places if each.largest == 0] == ["embedding", "block 0"]
    assert found.parted is not None
    assert found.failures[1] == f"token {found.parted + 1} is another one"


def test_rounded_weights_are_held_to_the_bounds(tiny_folder: Folder) -> None:
    folder = str(tiny_folder("qwen3"))
    near = compared(folder, "train", "bf16")
    assert not near.equal
    assert near.failures == ()
    assert 0.5 < min(each.cosine for each in near.places[:-2]) < 1
    strict = compared(folder, "train", "bf16", Bounds(0.99999, 1))
    assert any("block 1 has cosine" in failure for failure in strict.failures)
    assert not any("embedding" in failure for failure in strict.failures)
    share = near.agreed / near.tokens
    assert any("of the tokens agree" in failure for failure in strict.failures) == (share < 1)


def test_where_two_models_part_is_said(tiny_folder: Folder) -> None:
    found = compared(str(tiny_folder("qwen3")), "train", str(tiny_folder("llama")), tokens=12)
    assert found.parted is not None
    assert found.agreed < 12
    assert found.failures == ()
