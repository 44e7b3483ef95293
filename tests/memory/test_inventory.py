from typing import Any

import pytest
import torch

from fourge.memory.inventory import Inventory, take_inventory
from fourge.memory.wanted import Wanted
from fourge.model.shapes import random_model, shape_config
from fourge.model.swap import nvfp4_layers
from fourge.nvfp4.packed import PackedWeight
from fourge.optim.adamw import AdamW
from fourge.optim.masters import MASTERS
from fourge.optim.moments import FORMATS
from fourge.train.prepare import prepare_, storage_dtype
from tests.memory.samples import wanted


def real(asked: Wanted) -> tuple[Any, AdamW]:
    model = random_model(asked.config, storage_dtype(asked.master))
    named = prepare_(model, scheme=asked.scheme, master=asked.master, last_layers=asked.last_layers)
    optimizer = AdamW(named, master=asked.master, moments=asked.moments)
    optimizer.allocate()
    return model, optimizer


def tensors_in(value: Any) -> int:
    return sum(t.nbytes for t in value if isinstance(t, torch.Tensor))


def held_by(model: Any, optimizer: AdamW) -> dict[str, int]:
    """Bytes that really are there, by kind."""
    found = {"master": 0, "residual": 0, "moments": 0}
    for param in model.parameters():
        matrix = param.matrix if isinstance(param, PackedWeight) else None
        parts = (matrix.packed_RC, matrix.block_scale_RB, matrix.tensor_scale) if matrix else None
        found["master"] += param.nbytes if parts is None else tensors_in(parts)
        state = dict(optimizer.state.get(param, {}))
        residual = state.pop("residual", None)
        found["residual"] += 0 if residual is None else residual.nbytes
        found["moments"] += tensors_in(state.values())
    codes = [layer.codes() for layer in nvfp4_layers(model).values()]
    forms = [(c.packed_RC, c.block_scale_RB, c.tensor_scale) for c in codes]
    found["codes"] = sum(tensors_in(each) for each in forms)
    return found


def counted(inventory: Inventory) -> dict[str, int]:
    return {what: inventory.total(what) for what in ("master", "residual", "moments", "codes")}


@pytest.mark.parametrize("master", MASTERS)
@pytest.mark.parametrize("moments", FORMATS)
def test_the_inventory_is_what_is_really_allocated(master: Any, moments: Any) -> None:
    asked = wanted("llama", tied=False, master=master, moments=moments, layers=2)
    model, optimizer = real(asked)
    held, inventory = held_by(model, optimizer), take_inventory(asked)
    if master == "nvfp4":
        held["codes"] = 0  # they are the master
    assert counted(inventory) == held
    assert inventory.weights == sum(p.numel() for p in model.parameters())
    assert inventory.loaded == inventory.weights * storage_dtype(master).itemsize


def test_frozen_layers_have_no_state() -> None:
    asked = wanted("llama", tied=False, layers=2, last_layers=1)
    model, optimizer = real(asked)
    inventory = take_inventory(asked)
    assert counted(inventory) == held_by(model, optimizer)
    trained = sum(p.nbytes for p in model.parameters() if p.requires_grad)
    assert inventory.total("gradient") == trained


def test_many_layers_are_one_layer_many_times() -> None:
    asked = Wanted(config=shape_config("qwen3-0.6b"), tokens=64)
    inventory = take_inventory(asked)
    assert inventory.weights == 596_049_920
    assert inventory.largest("gradient") == 2 * 151936 * 1024
    assert inventory.decoded == 4 * 3072 * 1024


def test_without_quantised_layers_there_are_no_codes() -> None:
    inventory = take_inventory(wanted(scheme="none"))
    assert inventory.total("codes") == inventory.decoded == 0
