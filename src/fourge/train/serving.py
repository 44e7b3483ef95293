"""Ask a model questions in the middle of its training, and leave no trace.

Training computes blocks again and keeps no keys and values; answering wants the opposite. Both
hang on the module's mode and on ``use_cache``, which are put back; so is what is computed in, which
is meanwhile that of a loaded model. What a forward pass makes on the way (NVFP4 codes of the
weights as they are) is what the next training step would make.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fourge.model.mixed import activation_dtype, compute_in_
from fourge.model.swap import compute_dtype
from fourge.nvfp4.gemm import drop_scratch


@contextmanager
def serving(model: Any) -> Iterator[None]:
    """A block in which a model in training form generates as one that was loaded."""
    modes = {module: module.training for module in model.modules()}
    use_cache, dtype = model.config.use_cache, activation_dtype(model)
    answers_in = compute_dtype(model.device)
    if dtype != answers_in:
        compute_in_(model, answers_in)
    model.eval()
    model.config.use_cache = True
    try:
        yield
    finally:
        model.config.use_cache = use_cache
        if dtype != answers_in:
            compute_in_(model, dtype)
            drop_scratch()  # of the other dtype: no step would use it, and no plan counts it
        for module, mode in modes.items():
            module.training = mode
