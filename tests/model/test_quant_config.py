from typing import Any

import pytest

from fourge.model.quant_config import compressed_tensors, hf_quant_config, modelopt


@pytest.mark.parametrize("scheme", ["w4a16", "w4a4"])
def test_compressed_tensors_accepts_its_config(scheme: Any) -> None:
    from compressed_tensors.quantization import QuantizationConfig

    config = QuantizationConfig.model_validate(compressed_tensors(scheme, ["lm_head"]))
    group = config.config_groups["group_0"]
    assert config.ignore == ["lm_head"]
    assert group.weights.group_size == 16
    assert str(group.weights.scale_dtype) == "torch.float8_e4m3fn"
    assert (group.input_activations is not None) == (scheme == "w4a4")


def test_modelopts_file_has_what_vllm_asks_for() -> None:
    content = hf_quant_config("w4a4", ["lm_head"])["quantization"]
    assert content["quant_algo"] == "NVFP4"
    assert content["exclude_modules"] == ["lm_head"]
    assert {"group_size", "kv_cache_quant_algo", "exclude_modules"} <= content.keys()
    assert modelopt("w4a16", [])["quant_algo"] == "W4A16_NVFP4"
    assert "input_activations" in modelopt("w4a4", [])["config_groups"]["group_0"]
