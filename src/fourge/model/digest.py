"""One digest for all the weights of a model in memory: what a run starts from, what is judged."""

import hashlib
from typing import Any

from fourge.formats.stored import bytes_of


def digest_of_weights(model: Any) -> str:
    """128 bits, in hexadecimal, over every parameter and its name."""
    whole = hashlib.blake2b(digest_size=16)
    for name, param in model.named_parameters():
        own = hashlib.blake2b(bytes_of(param.detach().cpu()), digest_size=16)
        whole.update(name.encode() + own.digest())
    return whole.hexdigest()
