"""Lower layers that learn in some steps only, and rest between them.

What a model knows stands mostly in its lower layers; what it says of itself is learned above them.
A group of the optimizer with ``every: 4`` is trained in steps 1, 5, 9 ...; in the others the
backward pass ends above it, which leaves out two thirds of the work in those layers. Step 1 trains
everything, so that the first step needs the most memory of all.

Below the lowest layer is the embedding. It rests with it; where it is the head as well, it learns
as a head in every step, and only what came from the bottom is left out.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from fourge.optim.adamw import AdamW


@contextmanager
def resting(model: Any, optimizer: AdamW, step: int) -> Iterator[None]:
    """A block in which the groups whose turn ``step`` is not get no gradient."""
    tired = [group for group in optimizer.param_groups if (step - 1) % group.get("every", 1)]
    if not tired:
        yield
        return
    lookup, head = model.get_input_embeddings(), model.get_output_embeddings()
    params = [param for group in tired for param in group["params"]]
    if lookup.weight is not head.weight and lookup.weight.requires_grad:
        params.append(lookup.weight)
    for param in params:
        param.requires_grad_(False)
    handle = lookup.register_forward_hook(_cut)
    try:
        yield
    finally:
        handle.remove()
        for param in params:
            param.requires_grad_(True)


def _cut(module: nn.Module, args: Any, states: Tensor) -> Tensor:
    return states.detach()
