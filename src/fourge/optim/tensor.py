"""The update of one tensor: some rows at a time, whatever form its master and moments have.

A row chunk bounds the scratch memory of the 4-bit forms and keeps the rest in cache. Blocks lie
within rows and noise belongs to elements, so no bit depends on where the cuts are.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fourge.core import rng
from fourge.core.errors import ConfigError
from fourge.nvfp4.master import MasterWeight
from fourge.nvfp4.matrix import Nvfp4Matrix, dequantize
from fourge.nvfp4.packed import PackedWeight, requantize_rows_
from fourge.optim import native
from fourge.optim.kernel import update_
from fourge.optim.masters import MasterFormat
from fourge.optim.moments import (
    MomentFormat,
    block_for,
    format_for,
    new_moments,
    rows_and_columns,
)
from fourge.optim.moved import Moved
from fourge.optim.part import Part

CHUNK = 1 << 20  # elements at once, unless rows are asked for
MOMENTS = ("m", "v", "v_low", "v_step", "m_reach")


def new_state(part: Part, master: MasterFormat, moments: MomentFormat) -> dict[str, Any]:
    """What the optimizer keeps for a parameter that it has not updated yet."""
    value = part.value
    fresh = new_moments(part.shape, moments, value.device, count=part.count)
    state: dict[str, Any] = {"step": 0, **fresh}
    if master == "bf16+8" and value.dtype == torch.bfloat16:
        state["residual"] = torch.zeros(value.shape, dtype=torch.int8, device=value.device)
    return state


def scratch_nbytes(param: Tensor, moments: MomentFormat, chunk_rows: int | None) -> int:
    """What an update of this parameter holds at most, beside the parameter and its state.

    Kernels are compiled and keep values in registers, so it is what lies between them: 4-bit
    moments unpacked to bytes (2 per value); of a packed weight its float32 values, the same made
    fair, their codes and the scales of their blocks (11 per value).
    """
    rows, columns = rows_and_columns(tuple(param.shape))
    values = columns * min(rows, chunk_rows or max(1, CHUNK // columns))
    per_value = 2 if format_for(tuple(param.shape), moments) == "nvfp4" else 0
    return values * (per_value + (11 if isinstance(param, PackedWeight) else 0))


def update_tensor_(
    name: str,
    part: Part,
    state: dict[str, Any],
    numbers: Tensor,
    *,
    moments: MomentFormat,
    seed: int,
    chunk_rows: int | None,
    moved: Moved,
) -> None:
    """Update a parameter, or what is here of it, by its gradient, and its state, in place."""
    assert part.grad is not None, f"{name}: called without a gradient"
    value = part.value
    if isinstance(value, PackedWeight):
        stored, codes = value.matrix.packed_RC, 2
    else:
        stored, codes = _contiguous(name, value), 1
        stored = state.get("residual", stored)  # the finer part, where there is one
    with (moved if part.counts else Moved()).watching(stored, codes):
        _update_rows_(name, part, state, numbers, moments, seed, chunk_rows)
    if isinstance(value, MasterWeight):
        value.updated_()


def _update_rows_(
    name: str,
    part: Part,
    state: dict[str, Any],
    numbers: Tensor,
    moments: MomentFormat,
    seed: int,
    chunk_rows: int | None,
) -> None:
    value = part.value
    form = format_for(part.shape, moments)
    K = block_for(part.shape, form)
    columns = rows_and_columns(part.shape)[1]
    rows = part.count // columns
    words = rng.key(seed, state["step"], name).words(value.device)
    codes_key = rng.key(seed, state["step"], f"{name}/codes")
    packed = {each: state[each] for each in MOMENTS if each in state}
    grad_RC = part.grad.contiguous().view(rows, columns)  # type: ignore[union-attr]
    residual = state.get("residual")
    if not isinstance(value, PackedWeight):
        weight_NK, grad_NK = value.detach().view(-1, K), grad_RC.view(-1, K)
        if native.takes(weight_NK, residual, grad_NK, form):
            native.update_(weight_NK, grad_NK, packed, numbers, words, part.first)
            return
    for some in _chunks(rows, chunk_rows or max(1, CHUNK // columns)):
        block = slice(some.start * columns // K, some.stop * columns // K)
        weight_RC = _read(value, rows, columns, some)
        update_(
            weight_RC.view(-1, K),
            None if residual is None else residual.view(rows, columns)[some].view(-1, K),
            grad_RC[some].view(-1, K),
            {each: tensor[block] for each, tensor in packed.items()},
            form,
            numbers,
            words,
            torch.tensor(part.first + some.start * columns, device=value.device),
        )
        if isinstance(value, PackedWeight):
            requantize_rows_(value.matrix, some, weight_RC, codes_key, name=name)


def _read(param: Tensor, rows: int, columns: int, some: slice) -> Tensor:
    """Rows of the weight: a view of a dense one, a decoded copy of a packed one."""
    if not isinstance(param, PackedWeight):
        return param.detach().view(rows, columns)[some]
    matrix = param.matrix
    few = Nvfp4Matrix(matrix.packed_RC[some], matrix.block_scale_RB[some], matrix.tensor_scale)
    return dequantize(few)


def _chunks(rows: int, size: int) -> Iterator[slice]:
    return (slice(at, min(at + size, rows)) for at in range(0, rows, size))


def _contiguous(name: str, param: Tensor) -> Tensor:
    if param.is_contiguous():
        return param.detach()
    raise ConfigError(f"{name} is not contiguous in memory.", fix="call contiguous() on it first")
