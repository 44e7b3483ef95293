"""A model as plain transformers serves it: none of our layers, none of our loaders.

What was judged here must behave the same where it is used. compressed-tensors decodes every
weight to bf16; on a processor the same values are then computed with in float32, because its bf16
products take three times as long.
"""

from pathlib import Path
from typing import Any

import torch

from fourge.core.errors import FormatError
from fourge.model.swap import choose_device, compute_dtype


def load_plain(folder: Path, *, device: str = "auto", dtype: torch.dtype | None = None) -> Any:
    """The model of a transformers folder; computing in ``dtype``, or what suits the device.

    Raises:
        FormatError: it is no such folder.
    """
    from transformers import AutoModelForCausalLM

    require_plain(folder)
    place = choose_device(device)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to(place).eval()
    with torch.no_grad():
        model(torch.zeros(1, 1, dtype=torch.int64, device=place))  # weights are decoded now
    wanted = dtype or compute_dtype(place)
    return model if wanted == torch.bfloat16 else model.to(wanted)  # it would round the positions


def require_plain(folder: Path) -> None:
    """Raise unless it is a folder that transformers loads.

    Raises:
        FormatError: it is none.
    """
    if not (folder / "config.json").is_file():
        raise FormatError(
            f"{folder} is not a folder that transformers loads.",
            why="it has no config.json",
            fix="write one: fourge convert MODEL FOLDER --to compressed-tensors",
        )


def load_plain_tokenizer(folder: Path) -> Any:
    """Its tokenizer, by the same library."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)
