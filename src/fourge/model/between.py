"""The models on the straight line from one to another: ``base + share * (tuned - base)``.

Fine-tuned weights and those they came from lie in one valley more often than not, and what was
learned first is there long before the end of the line, while what was forgotten comes with its
last part. The smallest share that still does what was taught is the least forgetful model.

Tensors are mixed when they are read, one at a time, in float32, and rounded once to bf16.
"""

from dataclasses import replace

import torch
from torch import Tensor

from fourge.core.errors import ConfigError, FormatError
from fourge.formats.stored import Stored
from fourge.model.source import Source
from fourge.nvfp4.matrix import Nvfp4Matrix, dequantize


def between(base: Source, tuned: Source, share: float) -> Source:
    """A source whose tensors lie between those of two; its tokenizer is the tuned model's.

    Raises:
        ConfigError: the share is not from 0 to 1.
        FormatError: the two are not of one model.
    """
    if not 0 <= share <= 1:
        raise ConfigError(f"A share of {share} is not between two models.", fix="from 0 to 1")
    if base.tensors.keys() != tuned.tensors.keys():
        odd = sorted(base.tensors.keys() ^ tuned.tensors.keys())
        raise FormatError(
            f"{tuned.path} was not tuned from {base.path}.",
            why=f"only one of them has {odd[0]}, and {len(odd) - 1} more differ",
        )
    tensors = {
        name: _mixed(name, stored, tuned.tensors[name], share)
        for name, stored in base.tensors.items()
    }
    return replace(tuned, layout="dense", tensors=tensors, gguf_metadata=None)


def _mixed(name: str, base: Stored, tuned: Stored, share: float) -> Stored:
    if base.shape != tuned.shape:
        raise FormatError(f"{name} has shapes {base.shape} and {tuned.shape} in the two models.")

    def read() -> Tensor:
        return torch.lerp(_dense(base), _dense(tuned), share).to(torch.bfloat16)

    return Stored(base.shape, "bf16", 2 * torch.Size(base.shape).numel(), read)


def _dense(stored: Stored) -> Tensor:
    value = stored.read()
    return dequantize(value) if isinstance(value, Nvfp4Matrix) else value.float()
