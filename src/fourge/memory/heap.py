"""Holes in the C library's heap: memory that is free for us and lost to the machine.

Pieces below 32 MiB come from a heap. While a block runs, what it keeps comes to lie between what it
frees, and a hole that is a little too small for the next tensor stays one. How many stay is a
share, measured (``machine.py``), of what could: the working memory of a block, for every block.

The forward pass leaves them all; ``train.step`` gives them back before the head. In the backward
pass, what was kept is freed and joins them, and half as many are left. Gradients that stay (no
release) are kept pieces like any other, each beside the product it was rounded from.

The share is an average: between architectures and token counts it differs by a quarter or so, which
is a few percent of the whole.
"""

from fourge.memory.inventory import Inventory
from fourge.memory.live import LARGE
from fourge.memory.trace import Traced
from fourge.memory.wanted import Wanted


def forward_holes(wanted: Wanted, traced: Traced) -> int:
    """What the heap could keep without use when every block has run forward."""
    return (traced.forward.small - traced.kept.small) * wanted.layers


def backward_holes(wanted: Wanted, traced: Traced, inventory: Inventory) -> int:
    """The same, when every block has run backward."""
    holes = forward_holes(wanted, traced)
    if wanted.release:
        return holes // 2
    products = [piece.elements * wanted.compute.itemsize for piece in inventory.in_layers]
    small = max((nbytes for nbytes in products if nbytes < LARGE), default=0)
    return holes + small * wanted.trained_layers
