"""What a file holds: its tensors, their forms and sizes, and how far it is from another file."""

import re
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fourge.core.errors import FormatError
from fourge.formats.stored import NVFP4, Stored, Tensors
from fourge.model.source import open_tensors
from fourge.nvfp4.matrix import dequantize


@dataclass(frozen=True, slots=True)
class Row:
    """One tensor, or all tensors of one role over the layers."""

    name: str
    count: int
    shape: tuple[int, ...]
    kind: str
    nbytes: int
    error: float | None = None  # relative: |this - other| / |other|, over all of them


@dataclass(frozen=True, slots=True)
class Inspection:
    path: str
    layout: str
    rows: tuple[Row, ...]

    @property
    def nbytes(self) -> int:
        return sum(row.nbytes for row in self.rows)

    @property
    def values(self) -> int:
        return sum(row.count * torch.Size(row.shape).numel() for row in self.rows)


def inspect(
    path: str | Path, *, against: str | Path | None = None, every: bool = False
) -> Inspection:
    """List the tensors of a model or file; ``every`` lists each layer on its own.

    Raises:
        FormatError: it cannot be read, or has nothing in common with ``against``.
    """
    layout, tensors = open_tensors(path)
    errors: dict[str, tuple[float, float]] = {}
    if against is not None:
        errors = _squared_errors(tensors, open_tensors(against)[1])
        if not errors:
            raise FormatError(f"{path} and {against} have no tensor in common.")
    roles: dict[tuple[str, tuple[int, ...], str], list[str]] = {}
    for name, stored in tensors.items():
        role = name if every else re.sub(r"\.\d+\.", ".*.", name)
        roles.setdefault((role, stored.shape, stored.kind), []).append(name)
    rows = tuple(
        Row(
            role,
            len(names),
            shape,
            kind,
            sum(tensors[n].nbytes for n in names),
            _error(names, errors),
        )
        for (role, shape, kind), names in roles.items()
    )
    return Inspection(str(path), layout, rows)


def _squared_errors(these: Tensors, others: Tensors) -> dict[str, tuple[float, float]]:
    """Squared difference and squared size of each tensor that both have in the same shape."""
    found = {}
    for name, stored in these.items():
        other = others.get(name)
        if other is not None and other.shape == stored.shape:
            one, two = _values(stored), _values(other)
            found[name] = ((one - two).square().sum().item(), two.square().sum().item())
    return found


def _values(stored: Stored) -> Tensor:
    value = dequantize(stored.matrix()) if stored.kind == NVFP4 else stored.dense()
    return value.to(torch.float64)


def _error(names: list[str], errors: dict[str, tuple[float, float]]) -> float | None:
    known = [errors[name] for name in names if name in errors]
    if not known:
        return None
    difference, scale = (sum(column) for column in zip(*known, strict=True))
    return float((difference / scale) ** 0.5) if scale else float(difference**0.5)
