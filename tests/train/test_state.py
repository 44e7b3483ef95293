from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fourge.checkpoint import store
from fourge.checkpoint.state import TrainState
from fourge.core.errors import FormatError
from fourge.nvfp4.linear import calibrating
from fourge.optim.adamw import AdamW
from fourge.optim.schedule import Schedule
from fourge.train.loop import Plan, steps
from fourge.train.state import capture, restore_
from tests.train.samples import batch_of, optimizer_of, prepared, same, values

PLAN = Plan(lambda step: [batch_of([14, 9], seed=step)], Schedule("cosine", 5, warmup=1))


def begun(master: str = "bf16", moments: str = "int8", **settings: Any) -> tuple[Any, AdamW]:
    model, named = prepared("qwen3", master=master, **settings)
    if settings.get("scheme") == "w4a4":
        with calibrating(model), torch.no_grad():
            model(batch_of([14, 9]).token_BT)
    return model, optimizer_of(named, master=master, moments=moments)


def moments_of(optimizer: AdamW) -> dict[str, Tensor]:
    return {
        f"{name}/{key}": torch.as_tensor(value).clone()
        for name, param, _ in optimizer.named()
        for key, value in optimizer.state[param].items()
    }


@pytest.mark.parametrize("moments", ["fp32", "int8", "nvfp4"])
@pytest.mark.parametrize("master", ["bf16", "bf16+8", "fp32", "nvfp4"])
def test_a_run_that_is_taken_up_again_goes_on_bit_for_bit(
    master: str, moments: str, tmp_path: Path
) -> None:
    """After any step: through the disk, into a model and an optimizer made anew."""
    model, optimizer = begun(master, moments)
    for result in steps(model, optimizer, PLAN):
        if result.step in (1, 3):
            store.save(tmp_path, capture(model, optimizer, {"step": result.step}))
    expected, state = values(model), moments_of(optimizer)
    for path in store.checkpoints(tmp_path):
        again, fresh = begun(master, moments)
        stored = store.load(path)
        restore_(stored, again, fresh)
        losses = [r.loss for r in steps(again, fresh, PLAN, first=stored.step + 1)]
        assert len(losses) == 5 - stored.step
        assert same(expected, values(again))
        assert same(state, moments_of(fresh))


def test_input_scales_come_back(tmp_path: Path) -> None:
    model, optimizer = begun(scheme="w4a4")
    scales = {n: b.clone() for n, b in model.named_buffers() if n.endswith("input_scale")}
    assert len(scales) == 14
    path = store.save(tmp_path, capture(model, optimizer, {"step": 0}))
    other, fresh = begun(scheme="w4a4")
    for name, buffer in other.named_buffers():
        if name.endswith("input_scale"):
            buffer.fill_(3.0)
    restore_(store.load(path), other, fresh)
    assert same(scales, {n: b for n, b in other.named_buffers() if n in scales})


def test_frozen_weights_are_no_part_of_it() -> None:
    model, optimizer = begun(last_layers=1)
    names = capture(model, optimizer, {"step": 0}).tensors
    assert not any("layers.0." in name or "embed_tokens" in name for name in names)
    assert "weight/model.layers.1.mlp.up_proj.weight" in names
    assert "weight/model.norm.weight" in names


def test_what_is_captured_is_no_copy() -> None:
    model, optimizer = begun()
    optimizer.allocate()
    state = capture(model, optimizer, {"step": 0})
    name = "model.norm.weight"
    assert state.tensors[f"weight/{name}"].data_ptr() == model.base_model.norm.weight.data_ptr()
    param = model.base_model.norm.weight
    assert state.tensors[f"optim/{name}/m"].data_ptr() == optimizer.state[param]["m"].data_ptr()
    assert state.meta["optim"][name]["step"] == 0


def captured(**settings: Any) -> TrainState:
    model, optimizer = begun(**settings)
    optimizer.allocate()
    return capture(model, optimizer, {"step": 0})


def test_other_parameters_are_refused() -> None:
    state = captured(last_layers=1)
    model, optimizer = begun()
    before = values(model)
    with pytest.raises(FormatError, match="not of this run") as caught:
        restore_(state, model, optimizer)
    assert "the run 24" in caught.value.why
    assert same(before, values(model))


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [("bf16", "fp32", r"bfloat16 \(300, 64\)"), ("bf16", "nvfp4", "nothing"),
     ("nvfp4", "bf16", "nothing")],
)  # fmt: skip
def test_another_kind_of_master_is_refused(one: str, other: str, found: str) -> None:
    state = captured(master=one)
    with pytest.raises(FormatError, match=rf"The checkpoint has .*{found} for weight/") as caught:
        restore_(state, *begun(master=other))
    assert "the run needs" in caught.value.why


@pytest.mark.parametrize("change", ["shape", "dtype", "missing"])
def test_a_weight_of_another_form_is_refused(change: str) -> None:
    state = captured()
    key = "weight/model.norm.weight"
    if change == "missing":
        del state.tensors[key]
    else:
        wrong = {"shape": torch.zeros(65, dtype=torch.bfloat16), "dtype": torch.zeros(64)}
        state.tensors[key] = wrong[change]
    with pytest.raises(FormatError, match=r"weight/model\.norm\.weight"):
        restore_(state, *begun())
