import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from fourge import api
from fourge.core.errors import CheckError, ConfigError, DataError, FormatError, OutputError
from fourge.formats.stored import NVFP4
from fourge.model.export import TARGETS
from fourge.model.source import open_source
from fourge.nvfp4.recipe import RECIPES

Folder = Callable[..., Path]


def test_every_public_name_is_there() -> None:
    for name in api.__all__:
        assert hasattr(api, name)


def test_w4a4_is_calibrated_on_the_way(tiny_folder: Folder, tmp_path: Path) -> None:
    result = api.convert(
        tiny_folder("llama"), tmp_path / "out", "compressed-tensors", scheme="w4a4"
    )
    assert result.scheme == "w4a4"
    tensors = open_source(tmp_path / "out").tensors
    scales = [name for name in tensors if name.endswith(".input_scale")]
    assert len(scales) == 14
    api.check_export(tiny_folder("llama"), tmp_path / "out")


@pytest.mark.parametrize("target", ["modelopt", "gguf", "dat2"])
def test_activation_scales_survive_every_format(
    tiny_folder: Folder, tmp_path: Path, target: str
) -> None:
    first, back = tmp_path / "first", tmp_path / "back"
    there = tmp_path / ("there.gguf" if target == "gguf" else "there")
    api.convert(tiny_folder("qwen3"), first, "compressed-tensors", scheme="w4a4")
    api.convert(first, there, target, scheme="w4a4")
    assert api.convert(there, back, "compressed-tensors").scheme == "w4a4"
    assert (back / "model.safetensors").read_bytes() == (first / "model.safetensors").read_bytes()


def test_activation_scales_are_dropped_when_that_is_asked(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    api.convert(tiny_folder("qwen3"), tmp_path / "a4", "compressed-tensors", scheme="w4a4")
    dropped = api.convert(tmp_path / "a4", tmp_path / "a16", "modelopt", scheme="w4a16")
    assert dropped.scheme == "w4a16"


def test_settings_that_would_change_nothing_are_refused(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    folder, out = tiny_folder("qwen3"), tmp_path / "out"
    api.convert(folder, tmp_path / "nvfp4", "modelopt")
    (tmp_path / "texts.txt").write_text("one")
    for model, settings in (
        (folder, {"target": "safetensors", "scheme": "w4a4"}),
        (folder, {"target": "modelopt", "calibration": tmp_path / "texts.txt"}),
        (tmp_path / "nvfp4", {"target": "dat2", "recipe": RECIPES["te"]}),
        (folder, {"target": "modelopt", "keep": ["lmhead"]}),
        (folder, {"target": "modelopt", "keep": ["lmhead"], "scheme": "w4a4"}),
        (folder, {"target": "modelopt", "keep": ["self_attn", "mlp", "lm_head"]}),
    ):
        with pytest.raises(ConfigError):
            api.convert(model, out, **settings)
        assert not out.exists()


def test_half_of_a_fused_group_is_not_quantised(tiny_folder: Folder, tmp_path: Path) -> None:
    keep = ["lm_head", "q_proj"]
    api.convert(tiny_folder("llama"), tmp_path / "half", "modelopt", keep=keep)
    with pytest.raises(FormatError, match="one scale for both"):
        api.convert(tmp_path / "half", tmp_path / "whole", "modelopt")
    api.convert(tmp_path / "half", tmp_path / "again", "compressed-tensors", keep=keep)


@pytest.mark.parametrize("target", TARGETS)
def test_values_that_are_not_finite_are_written_nowhere(
    tiny_folder: Folder, tmp_path: Path, target: str
) -> None:
    folder = tmp_path / "bad"
    shutil.copytree(tiny_folder("llama"), folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"][3] = float("nan")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(FormatError, match=r"model\.norm\.weight has a value that is not finite"):
        api.convert(folder, tmp_path / ("out.gguf" if target == "gguf" else "out"), target)
    assert [path.name for path in tmp_path.iterdir()] == ["bad"]


def test_the_single_level_dat_has_no_place_for_activation_scales(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="dat2"):
        api.convert(tiny_folder("qwen3"), tmp_path / "out", "dat", scheme="w4a4")
    assert not (tmp_path / "out").exists()


def test_calibrating_an_nvfp4_source_keeps_its_codes(tiny_folder: Folder, tmp_path: Path) -> None:
    api.convert(tiny_folder("qwen3"), tmp_path / "a16", "compressed-tensors")
    api.convert(tmp_path / "a16", tmp_path / "a4", "compressed-tensors", scheme="w4a4")
    one, two = open_source(tmp_path / "a16").tensors, open_source(tmp_path / "a4").tensors
    assert sum(name.endswith(".input_scale") for name in two) == 14
    for name, stored in one.items():
        if stored.kind == NVFP4:
            assert torch.equal(stored.matrix().packed_RC, two[name].matrix().packed_RC)


def test_a_model_that_differs_from_its_export_is_told(
    tiny_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.convert(tiny_folder("qwen3"), tmp_path / "out", "compressed-tensors")
    load = api.load_model

    def spoiled(*args: object, **kwargs: object) -> object:
        model = load(*args, **kwargs)  # type: ignore[arg-type]
        with torch.no_grad():
            model.model.norm.weight.mul_(1.5)
        return model

    monkeypatch.setattr(api, "load_model", spoiled)
    with pytest.raises(CheckError, match="does not give our logits"):
        api.check_export(tiny_folder("qwen3"), tmp_path / "out")


def test_the_input_cannot_be_the_output(tiny_folder: Folder, tmp_path: Path) -> None:
    api.convert(tiny_folder("qwen3"), tmp_path / "out", "dat2")
    with pytest.raises(ConfigError, match="lies in"):
        api.convert(tiny_folder("qwen3"), tiny_folder("qwen3") / "sub", "modelopt")
    for out in (tmp_path / "out", tmp_path):
        with pytest.raises(ConfigError, match="never modified"):
            api.convert(tmp_path / "out", out, "modelopt", overwrite=True)
    assert (tmp_path / "out" / "model.dat").exists()


def test_a_trained_model_is_saved_with_the_tokenizer_of_its_origin(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    model = api.load_model(open_source(tiny_folder("qwen3")), dtype=torch.bfloat16)
    api.quantize_(model)
    api.save(model, tmp_path / "out", like=tiny_folder("qwen3"))
    again = api.load_model(open_source(tmp_path / "out"), dtype=torch.bfloat16)
    tokens = torch.arange(9).unsqueeze(0)
    with torch.no_grad():
        assert torch.equal(again(tokens).logits, model(tokens).logits)
    with pytest.raises(OutputError, match="exists"):
        api.save(model, tmp_path / "out", like=tiny_folder("qwen3"))


@pytest.mark.parametrize(
    ("name", "target"), [("model", "gguf"), ("m.dat", "dat2"), ("m.gguf", "dat")]
)
def test_a_name_that_says_something_else_is_refused(
    tiny_folder: Folder, tmp_path: Path, name: str, target: str
) -> None:
    with pytest.raises(ConfigError, match="call it") as caught:
        api.convert(tiny_folder("llama"), tmp_path / name, target)
    assert caught.value.fix.startswith("call it")


def test_an_nvfp4_layer_cannot_be_kept_in_bf16(tiny_folder: Folder, tmp_path: Path) -> None:
    api.convert(tiny_folder("llama"), tmp_path / "out", "modelopt")
    with pytest.raises(ConfigError, match="NVFP4 already"):
        api.convert(tmp_path / "out", tmp_path / "two", "dat2", keep=["lm_head", "down_proj"])


def test_asking_needs_a_chat_template(tiny_folder: Folder, tmp_path: Path) -> None:
    assert isinstance(api.ask(tiny_folder("qwen3"), "hi", max_tokens=2), str)
    api.convert(tiny_folder("qwen3"), tmp_path / "out", "safetensors")
    (tmp_path / "out" / "chat_template.jinja").unlink()
    with pytest.raises(DataError, match="no chat template"):
        api.ask(tmp_path / "out", "hi")
