"""Ask a model questions in the middle of its training, and leave no trace.

Training computes blocks again and keeps no keys and values; answering wants the opposite. Both
hang on the module's mode and on ``use_cache``, which are put back. What a forward pass makes on
the way (NVFP4 codes of the weights as they are) is what the next training step would make.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def serving(model: Any) -> Iterator[None]:
    """A block in which a model in training form generates as one that was loaded."""
    modes = {module: module.training for module in model.modules()}
    use_cache = model.config.use_cache
    model.eval()
    model.config.use_cache = True
    try:
        yield
    finally:
        model.config.use_cache = use_cache
        for module, mode in modes.items():
            module.training = mode
