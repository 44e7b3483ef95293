"""A weight that knows when it was written, so that nothing derived from it can be stale.

Quantised codes are computed once per version of the weight and reused. torch counts in-place
writes in ``_version``, but two common writers escape it: fused optimizers (torch 2.13's
``AdamW(fused=True)`` leaves the counter alone) and anything that goes through ``.data``. So the
version is ours: torch's counter, plus one for

* each ``written_()``, which whoever writes behind torch's back calls;
* each touch of ``.data``, because a write may follow;
* each ``step()`` of any ``torch.optim.Optimizer`` that holds the weight.

A tensor got from ``.data`` shares memory and has a counter of its own: while one is alive
(``has_alias``) no version can be trusted, and what is derived must be derived anew each time.
What remains is whoever calls a kernel directly, on the parameter, outside of an optimizer: they
call ``written_()``.

It is a ``Parameter`` in every other respect. ``adopt`` turns a parameter into one in place, so
that ties, optimizers and hooks that already hold it keep holding it.
"""

import itertools
from collections.abc import Callable
from typing import Any
from weakref import WeakMethod

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.utils.weak import WeakTensorKeyDictionary

_serials = itertools.count()  # never reused, unlike an id
_forgetters = WeakTensorKeyDictionary()  # beside the weight, which can then be pickled


class MasterWeight(nn.Parameter):
    """A parameter with a version of its own."""

    _writes: int
    _serial: int

    @property
    def version(self) -> tuple[int, int, int]:
        """Equal twice only if it is the same weight, and no write came between."""
        if "_serial" not in self.__dict__:
            self._serial = next(_serials)
        return self._serial, self.__dict__.get("_writes", 0), self._version

    @property
    def has_alias(self) -> bool:
        """Whether another tensor can write this memory without our knowing."""
        storage = self.untyped_storage()
        # Ours and the handle just made; more is somebody else's.
        return torch._C._storage_Use_Count(storage._cdata) > 2

    def written_(self) -> None:
        """Say that the weight was written in a way that torch does not count."""
        self._writes = self.__dict__.get("_writes", 0) + 1

    def on_update(self, forget: Callable[[], None]) -> None:
        """Have a method called when the weight is next updated for good."""
        _forgetters[self] = WeakMethod(forget)

    def updated_(self) -> None:
        """Say that an optimizer changed the weight: what was derived from it is freed now."""
        self.written_()
        forget = _forgetters[self]() if self in _forgetters else None
        if forget is not None:
            forget()

    @property
    def data(self) -> Tensor:
        self.written_()
        return torch.Tensor.data.__get__(self)  # type: ignore[attr-defined,no-any-return]

    @data.setter
    def data(self, value: Tensor) -> None:
        self.written_()
        torch.Tensor.data.__set__(self, value)  # type: ignore[attr-defined]


def adopt(parameter: Tensor) -> MasterWeight:
    """The same parameter object, from now on with a version."""
    assert isinstance(parameter, nn.Parameter), "only a parameter can be adopted"
    if not isinstance(parameter, MasterWeight):
        parameter.__class__ = MasterWeight
    assert isinstance(parameter, MasterWeight), "a parameter refused its new class"
    return parameter


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _after_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if isinstance(parameter, MasterWeight):
                parameter.written_()


register_optimizer_step_post_hook(_after_step)
