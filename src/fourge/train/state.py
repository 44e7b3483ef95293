"""What a run is between two steps, as named tensors and JSON, and back.

| name                                  | holds                                            |
|---------------------------------------|--------------------------------------------------|
| ``weight/<parameter>``                | a trained parameter, or                          |
| ``weight/<parameter>/packed`` ...     | the codes and scales that are its master         |
| ``buffer/<name>``                     | a buffer that is saved with the model            |
| ``optim/<parameter>/<m, v, ...>``     | the optimizer's tensors for it, row by row       |
| meta ``optim``                        | the optimizer's plain numbers, per parameter     |

Parameters that are frozen are those of the model that the run started from.
"""

from typing import Any

import torch
from torch import Tensor

from fourge.checkpoint.state import StoredState, TrainState
from fourge.core.errors import FormatError
from fourge.model.build import saved_buffers
from fourge.nvfp4.packed import PackedWeight
from fourge.optim.adamw import AdamW


def capture(model: Any, optimizer: AdamW, meta: dict[str, Any]) -> TrainState:
    """The state of a run. The tensors are the live ones, not copies."""
    tensors = {f"buffer/{name}": each for name, each in saved_buffers(model).items()}
    numbers: dict[str, dict[str, Any]] = {}
    for name, param, _ in optimizer.named():
        tensors |= _weight_tensors(name, param)
        state = optimizer.state.get(param, {})
        for key, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"optim/{name}/{key}"] = by_rows(value, param)
        numbers[name] = {k: v for k, v in state.items() if not isinstance(v, Tensor)}
    return TrainState(tensors, {**meta, "optim": numbers})


@torch.no_grad()
def restore_(state: TrainState | StoredState, model: Any, optimizer: AdamW) -> None:
    """Put a state into a model and an optimizer that were made the same way, tensor by tensor.

    Raises:
        FormatError: the state is not of this model and these settings.
    """
    named = {name: param for name, param, _ in optimizer.named()}
    if named.keys() != state.meta["optim"].keys():
        raise FormatError(
            "The checkpoint is not of this run.",
            why=f"it holds {len(state.meta['optim'])} trained parameters, the run "
            f"{len(named)}, or of other names",
            fix="resume with the run file that made it",
        )
    kept = _optimizer_tensors(state)
    for name, param in named.items():
        for key, target in _weight_tensors(name, param).items():
            _copy_(state, key, target)
        shapes = {k: v.shape for k, v in optimizer.state_of(param).items() if isinstance(v, Tensor)}
        optimizer.state[param] = dict(state.meta["optim"][name])
        for key in kept.get(name, ()):
            value = state.tensors[f"optim/{name}/{key}"].to(param.device)
            optimizer.state[param][key] = value.view(shapes.get(key, value.shape))
    for name, buffer in saved_buffers(model).items():
        _copy_(state, f"buffer/{name}", buffer)


def by_rows(value: Tensor, param: Tensor) -> Tensor:
    """Moments as a matrix with the parameter's rows, so that a part of it has whole rows."""
    return value.view(param.shape[0], -1) if param.dim() > 1 else value


def _optimizer_tensors(state: TrainState | StoredState) -> dict[str, list[str]]:
    """Of each parameter, what the optimizer has in tensors."""
    found: dict[str, list[str]] = {}
    for key in state.tensors:
        if key.startswith("optim/"):
            name, _, kind = key.removeprefix("optim/").rpartition("/")
            found.setdefault(name, []).append(kind)
    return found


def _weight_tensors(name: str, param: Tensor) -> dict[str, Tensor]:
    key = f"weight/{name}"
    if not isinstance(param, PackedWeight):
        return {key: param.detach()}
    matrix = param.matrix
    return {
        f"{key}/packed": matrix.packed_RC,
        f"{key}/block_scale": matrix.block_scale_RB,
        f"{key}/tensor_scale": matrix.tensor_scale,
    }


def _copy_(state: TrainState | StoredState, key: str, target: Tensor) -> None:
    stored = state.tensors.get(key)
    if stored is None or stored.shape != target.shape or stored.dtype != target.dtype:
        found = "nothing" if stored is None else f"{stored.dtype} {tuple(stored.shape)}"
        raise FormatError(
            f"The checkpoint has {found} for {key}.",
            why=f"the run needs {target.dtype} {tuple(target.shape)}",
            fix="resume with the run file that made it",
        )
    if target.dtype == torch.float8_e4m3fn:  # copied as bytes: torch has no copy for it on CPU
        target.view(torch.uint8).copy_(stored.view(torch.uint8))
    else:
        target.copy_(stored)
