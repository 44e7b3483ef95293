"""Products that are kept for a second run of the code that made them.

Recompute runs a block of layers twice: once for its result, once more in the backward pass for
what lies between. A product is the dear part of both. Inside ``keeping(products)`` each one is
remembered, in order; inside ``reusing(products)`` each is given out again instead of being made,
so that only the cheap work between products is done twice.

torch has this as selective checkpointing, by watching every operation; at 2,000 operations a
pass that costs more than it saves on a small model (measured: docs/why.md).
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor


class Products:
    """The products of one run, in order, as they were made."""

    def __init__(self) -> None:
        self._made: list[tuple[Tensor, int]] = []

    def keep(self, product: Tensor) -> None:
        alias = product.detach()  # what autograd hangs on the product must not be kept with it
        self._made.append((alias, alias._version))

    def let_go_of(self, result: object) -> None:
        """Keep of the last product its shape alone, if it is what the run gave.

        The second run is for what lies between: nobody reads what it gives.
        """
        last = self._made[-1][0] if self._made else None
        if isinstance(result, Tensor) and last is not None and _same_memory(last, result):
            blank = last.new_empty(()).expand(last.shape)
            self._made[-1] = blank, blank._version

    def again(self) -> Iterator[Tensor]:
        for product, version in self._made:
            if product._version != version:
                raise RuntimeError("a product that was kept has been written to since")
            yield product.detach()


def _same_memory(one: Tensor, other: Tensor) -> bool:
    return bool(one.untyped_storage()._cdata == other.untyped_storage()._cdata)


class _Now(threading.local):
    """What this thread is doing."""

    keep: Products | None = None
    again: Iterator[Tensor] | None = None


_now = _Now()


@contextmanager
def keeping(products: Products) -> Iterator[None]:
    outer, _now.keep = _now.keep, products
    try:
        yield
    finally:
        _now.keep = outer


class reusing:  # noqa: N801 (used as a function; torch enters it once per backward pass)
    """May be entered again for as long as the products are held."""

    def __init__(self, products: Products) -> None:
        self._products = products
        self._outer: list[Iterator[Tensor] | None] = []

    def __enter__(self) -> None:
        self._outer.append(_now.again)
        _now.again = self._products.again()

    def __exit__(self, *error: object) -> None:
        _now.again = self._outer.pop()


def product(make: Callable[[], Tensor]) -> Tensor:
    """What ``make`` gives; kept, or given out again, where that was asked for."""
    if _now.again is not None:
        return next(_now.again)
    made = make()
    if _now.keep is not None:
        _now.keep.keep(made)
    return made
