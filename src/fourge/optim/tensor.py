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

CHUNK = 1 << 20  # elements at once, unless rows are asked for
MOMENTS = ("m", "v", "v_low", "v_step", "m_reach")


def new_state(param: Tensor, master: MasterFormat, moments: MomentFormat) -> dict[str, Any]:
    """What the optimizer keeps for a parameter that it has not updated yet."""
    shape = tuple(param.shape)
    state: dict[str, Any] = {"step": 0, **new_moments(shape, moments, param.device)}
    if master == "bf16+8" and param.dtype == torch.bfloat16:
        state["residual"] = torch.zeros(shape, dtype=torch.int8, device=param.device)
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
    param: Tensor,
    state: dict[str, Any],
    numbers: Tensor,
    *,
    moments: MomentFormat,
    seed: int,
    chunk_rows: int | None,
    moved: Moved,
) -> None:
    """Update a parameter by its gradient, and its state, in place."""
    assert param.grad is not None, f"{name}: called without a gradient"
    if isinstance(param, PackedWeight):
        stored, codes = param.matrix.packed_RC, 2
    else:
        stored, codes = _contiguous(name, param), 1
        stored = state.get("residual", stored)  # the finer part, where there is one
    with moved.watching(stored, codes):
        _update_rows_(name, param, state, numbers, moments, seed, chunk_rows)
    if isinstance(param, MasterWeight):
        param.updated_()


def _update_rows_(
    name: str,
    param: Tensor,
    state: dict[str, Any],
    numbers: Tensor,
    moments: MomentFormat,
    seed: int,
    chunk_rows: int | None,
) -> None:
    shape = tuple(param.shape)
    form = format_for(shape, moments)
    K = block_for(shape, form)
    rows, columns = rows_and_columns(shape)
    words = rng.key(seed, state["step"], name).words(param.device)
    codes_key = rng.key(seed, state["step"], f"{name}/codes")
    packed = {each: state[each] for each in MOMENTS if each in state}
    grad_RC = param.grad.contiguous().view(rows, columns)  # type: ignore[union-attr]
    residual = state.get("residual")
    for part in _chunks(rows, chunk_rows or max(1, CHUNK // columns)):
        block = slice(part.start * columns // K, part.stop * columns // K)
        weight_RC = _read(param, rows, columns, part)
        update_(
            weight_RC.view(-1, K),
            None if residual is None else residual.view(rows, columns)[part].view(-1, K),
            grad_RC[part].view(-1, K),
            {each: tensor[block] for each, tensor in packed.items()},
            form,
            numbers,
            words,
            torch.tensor(part.start * columns, device=param.device),
        )
        if isinstance(param, PackedWeight):
            requantize_rows_(param.matrix, part, weight_RC, codes_key, name=name)


def _read(param: Tensor, rows: int, columns: int, part: slice) -> Tensor:
    """Rows of the weight: a view of a dense one, a decoded copy of a packed one."""
    if not isinstance(param, PackedWeight):
        return param.detach().view(rows, columns)[part]
    matrix = param.matrix
    some = Nvfp4Matrix(matrix.packed_RC[part], matrix.block_scale_RB[part], matrix.tensor_scale)
    return dequantize(some)


def _chunks(rows: int, size: int) -> Iterator[slice]:
    return (slice(at, min(at + size, rows)) for at in range(0, rows, size))


def _contiguous(name: str, param: Tensor) -> Tensor:
    if param.is_contiguous():
        return param.detach()
    raise ConfigError(f"{name} is not contiguous in memory.", fix="call contiguous() on it first")
