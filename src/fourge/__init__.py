"""Fine-tune every weight of a language model on one machine, in NVFP4.

``fourge.quantize_(model)`` puts NVFP4 layers into a transformers model; ``fourge.api`` has what
the commands do. Nothing heavy is imported until one of them is used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fourge.model.swap import quantize_
    from fourge.nvfp4.linear import calibrating

__version__ = "0.1.0"
__all__ = ["__version__", "calibrating", "quantize_"]


def __getattr__(name: str) -> Any:
    if name == "quantize_":
        from fourge.model.swap import quantize_

        return quantize_
    if name == "calibrating":
        from fourge.nvfp4.linear import calibrating

        return calibrating
    raise AttributeError(f"module 'fourge' has no attribute {name!r}")
