"""One digest for all the weights of a model: is this the model that a file belongs to?

A dense parameter counts with its bytes, so the same model in another dtype is another one. An
NVFP4 layer counts with its codes and scales, which are all that its output depends on: a weight
with a master and the same weight as codes alone are the same model.
"""

import hashlib
from typing import Any

from torch import Tensor

from fourge.formats.stored import bytes_of
from fourge.model.swap import nvfp4_layers


def digest_of_weights(model: Any) -> str:
    """The digest of every parameter, by name."""
    layers = {f"{name}.weight": layer for name, layer in nvfp4_layers(model).items()}
    whole = hashlib.blake2b(digest_size=16)
    for name, param in model.named_parameters():
        parts: tuple[Tensor, ...] = (param,)
        if name in layers:
            codes = layers[name].codes()
            parts = (codes.packed_RC, codes.block_scale_RB, codes.tensor_scale)
        own = hashlib.blake2b(digest_size=16)
        for part in parts:
            own.update(bytes_of(part))
        whole.update(name.encode() + own.digest())
    return whole.hexdigest()
