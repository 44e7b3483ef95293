"""What of a parameter lies in this process: all of it, or some of its rows.

An update works on what is here and must not depend on how much that is. Blocks of moments lie
within rows, and noise belongs to an element's index in the whole tensor, so three things are
enough: the values, the shape of the whole, and the index of the first value here.
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Part:
    value: Tensor  # the weight, or its rows
    grad: Tensor | None
    shape: tuple[int, ...]  # of the whole parameter
    first: int = 0  # index, in the whole parameter, of the first value
    counts: bool = True  # in a sum over processes; of copies, one does

    @property
    def count(self) -> int:
        """How many values are here."""
        return self.value.numel()


def whole(param: Tensor) -> Part:
    """A parameter that is here in full."""
    return Part(param, param.grad, tuple(param.shape))
