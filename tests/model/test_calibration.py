from collections.abc import Callable
from pathlib import Path

import pytest

from fourge.core.errors import ConfigError
from fourge.model.build import load_model
from fourge.model.calibration import calibrate_
from fourge.model.source import open_source
from fourge.model.swap import nvfp4_layers, quantize_


def test_every_layer_gets_a_power_of_two(tiny_folder: Callable[..., Path], tmp_path: Path) -> None:
    source = open_source(tiny_folder("qwen3"))
    scales = []
    (tmp_path / "texts.txt").write_text("one line\n\nanother line\n", encoding="utf-8")
    for texts in (None, tmp_path / "texts.txt"):
        model = load_model(source)
        quantize_(model, scheme="w4a4")
        calibrate_(model, source, texts)
        found = {n: layer.require_input_scale() for n, layer in nvfp4_layers(model).items()}
        assert all(scale.frexp()[0] == 0.5 for scale in found.values())
        scales.append(found)
    attention = "model.layers.0.self_attn"
    assert scales[0][f"{attention}.q_proj"] == scales[0][f"{attention}.v_proj"]


def test_a_file_without_text_is_refused(tiny_folder: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    source = open_source(tiny_folder("qwen3"))
    with pytest.raises(ConfigError, match="no text"):
        calibrate_(load_model(source), source, tmp_path / "empty.txt")
