"""What a checkpoint says about its own quantisation, in the words of those who read it."""

from collections.abc import Sequence
from typing import Any

from fourge import __version__
from fourge.nvfp4.blocks import BLOCK
from fourge.nvfp4.gemm import Scheme

_ALGORITHM: dict[Scheme, str] = {"w4a16": "W4A16_NVFP4", "w4a4": "NVFP4"}


def compressed_tensors(scheme: Scheme, kept: Sequence[str]) -> dict[str, Any]:
    """``quantization_config`` for transformers and vLLM.

    ``scale_dtype`` must be there: without it activation scales are not rounded to E4M3.
    """
    weights = {
        "num_bits": 4,
        "type": "float",
        "strategy": "tensor_group",
        "group_size": BLOCK,
        "symmetric": True,
        "dynamic": False,
        "scale_dtype": "torch.float8_e4m3fn",
    }
    group = {
        "targets": ["Linear"],
        "format": "nvfp4-pack-quantized",
        "weights": weights,
        "input_activations": weights | {"dynamic": "local"} if scheme == "w4a4" else None,
        "output_activations": None,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": "nvfp4-pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": list(kept),
        "kv_cache_scheme": None,
    }


def modelopt(scheme: Scheme, kept: Sequence[str]) -> dict[str, Any]:
    """``quantization_config`` for engines that read ModelOpt checkpoints from config.json."""
    numbers = {"dynamic": False, "num_bits": 4, "type": "float", "group_size": BLOCK}
    group: dict[str, Any] = {"weights": numbers, "targets": ["Linear"]}
    if scheme == "w4a4":
        group["input_activations"] = numbers
    return {
        "quant_method": "modelopt",
        "quant_algo": _ALGORITHM[scheme],
        "config_groups": {"group_0": group},
        "ignore": list(kept),
        "producer": {"name": "fourge", "version": __version__},
    }


def hf_quant_config(scheme: Scheme, kept: Sequence[str]) -> dict[str, Any]:
    """ModelOpt's own file; vLLM needs all three keys beside the algorithm."""
    return {
        "producer": {"name": "fourge", "version": __version__},
        "quantization": {
            "quant_algo": _ALGORITHM[scheme],
            "kv_cache_quant_algo": None,
            "group_size": BLOCK,
            "exclude_modules": list(kept),
        },
    }
