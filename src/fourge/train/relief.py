"""Memory that can be given back in the middle of a run, because it can be made again.

The NVFP4 codes of the weights (the next forward pass quantises anew, to the same bits), the buffer
weights are decoded into, what Python, the C library and CUDA's allocator hold on to.
"""

import gc
from typing import Any

import torch

from fourge.core.process import trim_heap
from fourge.model.swap import nvfp4_layers
from fourge.nvfp4.gemm import drop_scratch


def give_back(model: Any) -> None:
    """Let go of everything that no bit of the run depends on."""
    for layer in nvfp4_layers(model).values():
        if not layer.loaded:  # loaded codes are a choice made elsewhere, and cannot be made again
            layer.drop_codes()
    drop_scratch()
    gc.collect()
    trim_heap()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
