from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fourge import api
from fourge.chat.feed import Feed
from fourge.chat.load import choose_path, load
from fourge.checkpoint.source import Opened, open_any
from fourge.core.errors import ConfigError
from fourge.model.digest import digest_of_weights
from fourge.model.swap import nvfp4_layers
from fourge.nvfp4.packed import PackedWeight
from tests.chat.samples import whole

Folder = Callable[..., Path]
TOKENS = [1, 50, 99, 7, 200, 3]


def logits(model: Any) -> torch.Tensor:
    return whole(model, TOKENS)


def dense_bytes(model: Any) -> int:
    """Memory of weights, not counting parameters that are a shape and no values."""
    return sum(p.untyped_storage().nbytes() for p in model.parameters())


@pytest.mark.parametrize("family", ["qwen3", "llama", "gemma3_text"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_codes_made_from_masters_and_codes_alone_are_the_same_model(
    family: str, dtype: str, tiny_folder: Folder
) -> None:
    opened = open_any(tiny_folder(family, tied=family != "llama", dtype=torch.float32))
    train, packed = (load(opened, path=path, dtype=dtype) for path in ("train", "packed"))
    assert (train.path, packed.path) == ("train", "packed")
    assert torch.equal(logits(train.model), logits(packed.model))
    assert digest_of_weights(train.model) == digest_of_weights(packed.model)
    assert len(nvfp4_layers(packed.model)) == 14


@pytest.mark.parametrize("target", ["compressed-tensors", "modelopt", "dat2", "gguf"])
def test_an_export_is_the_model_that_was_quantised_on_loading(
    target: str, tiny_folder: Folder, tmp_path: Path
) -> None:
    dense = tiny_folder("qwen3")
    out = tmp_path / ("out.gguf" if target == "gguf" else "out")
    api.convert(dense, out, target)
    opened = open_any(out)
    packed, train = load(opened), load(opened, path="train")
    assert packed.path == "packed"
    assert torch.equal(logits(packed.model), logits(train.model))
    assert torch.equal(logits(packed.model), logits(load(open_any(dense), path="packed").model))
    assert digest_of_weights(packed.model) == digest_of_weights(train.model)


def test_no_dense_copy_of_a_packed_weight_is_in_memory(tiny_folder: Folder) -> None:
    opened = open_any(tiny_folder("qwen3"))
    dense, packed = load(opened).model, load(opened, path="packed").model
    logits(packed)  # using them makes none either
    layers = nvfp4_layers(packed)
    assert all(isinstance(layer.weight, PackedWeight) for layer in layers.values())
    quantized = sum(layer.weight.numel() for layer in layers.values())
    ends = packed.get_input_embeddings().weight.numel() + packed.lm_head.weight.numel()
    saved = 4 * quantized - 4 * len(layers) + 2 * ends  # stored in bf16, they stay in bf16
    assert dense_bytes(packed) == dense_bytes(dense) - saved


@pytest.mark.parametrize("tied", [False, True])
def test_bf16_ends_compute_as_their_float32_copies(tiny_folder: Folder, tied: bool) -> None:
    opened = open_any(tiny_folder("qwen3", tied=tied))
    wide = open_any(tiny_folder("qwen3", tied=tied, dtype=torch.float32))
    for path in ("train", "packed"):
        narrow = load(opened, path=path).model
        assert narrow.lm_head.weight.dtype == torch.bfloat16
        assert (narrow.lm_head.weight is narrow.get_input_embeddings().weight) == tied
        assert narrow.model.norm.weight.dtype == torch.float32
        assert logits(narrow).dtype == torch.float32
    plain = load(opened, path="packed", dtype="bfloat16").model
    assert type(plain.lm_head) is torch.nn.Linear
    assert load(wide, path="packed").model.lm_head.weight.dtype == torch.float32


def test_one_token_at_a_time_gives_the_logits_of_one_pass(tiny_folder: Folder) -> None:
    """One row takes the kernel that reads codes, many the decoded weight."""
    model = load(open_any(tiny_folder("qwen3")), path="packed").model
    tokens = TOKENS * 5
    once = whole(model, tokens)
    feed = Feed(model)
    singly = torch.stack([feed.feed([token])[-1] for token in tokens])
    assert (singly - once).abs().max() <= 1e-5 * once.abs().max()


def test_w4a4_is_the_same_on_both_paths(tiny_folder: Folder, tmp_path: Path) -> None:
    api.convert(tiny_folder("qwen3"), tmp_path / "out", "compressed-tensors", scheme="w4a4")
    opened = open_any(tmp_path / "out")
    train, packed = load(opened, path="train").model, load(opened).model
    assert {layer.scheme for layer in nvfp4_layers(packed).values()} == {"w4a4"}
    assert torch.equal(logits(train), logits(packed))


def test_the_path_is_chosen_by_what_the_model_is(tiny_folder: Folder, tmp_path: Path) -> None:
    dense = open_any(tiny_folder("qwen3"))
    assert choose_path(dense, "auto") == "dense"
    api.convert(tiny_folder("qwen3"), tmp_path / "out", "compressed-tensors")
    packed = open_any(tmp_path / "out")
    assert choose_path(packed, "auto") == "packed"
    assert choose_path(packed, "train") == "train"
    with pytest.raises(ConfigError, match="no path 'fast'"):
        choose_path(packed, "fast")
    for opened in (packed, Opened(dense.source, scheme="w4a16")):
        assert choose_path(opened, "auto") == "packed"
        with pytest.raises(ConfigError, match="no dense path"):
            choose_path(opened, "dense")


def test_a_layer_that_an_export_keeps_dense_stays_dense(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    keep = ("embed_tokens", "lm_head", "norm", "down_proj")
    api.convert(tiny_folder("qwen3"), tmp_path / "out", "compressed-tensors", keep=keep)
    opened = open_any(tmp_path / "out")
    for path in ("train", "packed"):
        names = nvfp4_layers(load(opened, path=path).model)
        assert len(names) == 12
        assert not any("down_proj" in name for name in names)
