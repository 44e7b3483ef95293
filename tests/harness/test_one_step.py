from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fourge.core.errors import ConfigError, DivergedError
from fourge.harness.one_step import PHASES, OneStep, Phase, StepSettings, Trained
from fourge.nvfp4.matrix import Nvfp4Matrix
from fourge.nvfp4.packed import PackedWeight

Folder = Callable[..., Path]


@pytest.fixture
def model(tiny_folder: Folder) -> str:
    return str(tiny_folder("llama"))


def settings(model: str, **others: Any) -> StepSettings:
    return StepSettings(model=model, **{"tokens": 12, **others})


def phases(one: OneStep, stop_after: str = "cleanup") -> list[tuple[str, int]]:
    reports = [report for report in one.run(stop_after) if isinstance(report, Phase)]
    return [(report.name, report.step) for report in reports]


def test_the_phases_come_in_their_order(model: str) -> None:
    assert [name for name, _ in phases(OneStep(settings(model)))] == list(PHASES)
    middle = PHASES[2:-1]
    several = phases(OneStep(settings(model, steps=3)))
    expected = [(name, step) for step in (1, 2, 3) for name in middle]
    assert several == [("start", 0), ("model_loaded", 0), *expected, ("cleanup", 3)]


@pytest.mark.parametrize("last", PHASES)
def test_it_stops_after_the_phase_that_is_asked_for(model: str, last: str) -> None:
    names = [name for name, _ in phases(OneStep(settings(model)), last)]
    assert names == list(PHASES[: PHASES.index(last) + 1])


def test_a_phase_that_is_none_is_refused(model: str) -> None:
    with pytest.raises(ConfigError, match="no phase 'middle'") as caught:
        next(OneStep(settings(model)).run("middle"))
    assert "forward_done" in caught.value.fix


def test_each_phase_is_measured(model: str) -> None:
    reports = [report for report in OneStep(settings(model)).run() if isinstance(report, Phase)]
    for report in reports:
        assert report.seconds >= 0
        assert 1 << 20 < report.resident <= report.peak
        assert report.available > 1 << 20


def test_what_is_trained_is_said_once_the_model_is_there(model: str) -> None:
    one = OneStep(settings(model))
    reports = list(one.run("model_loaded"))
    trained = reports[-1]
    assert isinstance(trained, Trained)
    assert trained.tensors == len(list(one.model.parameters()))
    assert trained.elements == sum(p.numel() for p in one.model.parameters())


@pytest.mark.parametrize("release", [True, False])
@pytest.mark.parametrize("loss", ["ce", "hidden-l1"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_step_moves_what_its_loss_reaches(
    tiny_folder: Folder, loss: Any, release: bool, tied: bool
) -> None:
    folder = str(tiny_folder("llama", tied=tied))
    one = OneStep(settings(folder, loss=loss, release=release, lr=1e-2))
    run = one.run("step_done")
    while not isinstance(next(run), Trained):
        pass
    before = {name: parameter.detach().clone() for name, parameter in one.model.named_parameters()}
    list(run)
    moved = {n for n, p in one.model.named_parameters() if not torch.equal(p, before[n])}
    everything = set(before)
    assert moved == (everything - {"lm_head.weight"} if loss == "hidden-l1" else everything)
    assert {name for name, _ in one.named} == moved
    assert all(parameter.grad is None for parameter in one.model.parameters())


def test_the_hidden_loss_is_the_mean_size_of_the_last_states(model: str) -> None:
    one = OneStep(settings(model, loss="hidden-l1"))
    list(one.run("forward_done"))
    assert one.loss is not None
    states = one.model.base_model(one.batch.token_BT).last_hidden_state[:, :-1]
    assert one.loss.total.item() == pytest.approx(states.abs().mean().item(), rel=1e-5)


@pytest.mark.parametrize("moments", ["fp32", "int8", "nvfp4"])
@pytest.mark.parametrize("master", ["bf16", "bf16+8", "fp32", "nvfp4"])
def test_the_forms_of_a_tensor_add_up_to_what_is_held(
    model: str, master: Any, moments: Any
) -> None:
    one = OneStep(settings(model, master=master, moments=moments))
    list(one.run("step_done"))
    forms = {form.name: form for form in one.tensor_forms()}
    assert forms.keys() == {name for name, _ in one.named}
    state = one.optimizer.state.values()
    held = sum(v.nbytes for each in state for v in each.values() if isinstance(v, Tensor))
    assert sum(form.optimizer for form in forms.values()) == held
    size = 4 if master == "fp32" else 2
    for name, parameter in one.named:
        form = forms[name]
        assert form.shape == tuple(parameter.shape)
        assert form.gradient == parameter.numel() * size
        if isinstance(parameter, PackedWeight):
            assert form.master == Nvfp4Matrix.nbytes_for(*form.shape)
            assert form.codes == 0  # they are the master
        else:
            assert form.master == parameter.nbytes
            quantised = "_proj" in name
            assert form.codes == (Nvfp4Matrix.nbytes_for(*form.shape) if quantised else 0)
    assert master != "nvfp4" or any(isinstance(p, PackedWeight) for _, p in one.named)


def test_cleaning_up_lets_everything_go(model: str) -> None:
    one = OneStep(settings(model))
    list(one.run())
    assert one.model is None
    assert one.optimizer is None
    assert one.named == []
    assert one.loss is None


def test_noise_can_take_the_place_of_weights(model: str) -> None:
    one, other = OneStep(settings(model, random_weights=True)), OneStep(settings(model))
    list(one.run("model_loaded"))
    list(other.run("model_loaded"))
    shapes = [(name, parameter.shape) for name, parameter in other.model.named_parameters()]
    assert [(name, p.shape) for name, p in one.model.named_parameters()] == shapes
    assert not torch.equal(one.model.lm_head.weight, other.model.lm_head.weight)


def test_a_shape_has_no_weights_of_its_own() -> None:
    with pytest.raises(ConfigError, match=r"qwen3-0\.6b is a shape") as caught:
        StepSettings(model="qwen3-0.6b")
    assert "--random-weights" in caught.value.fix
    StepSettings(model="qwen3-0.6b", random_weights=True)


@pytest.mark.parametrize("wrong", [{"tokens": 1}, {"batch": 0}, {"steps": 0}])
def test_numbers_that_make_no_step_are_refused(model: str, wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="at least 2 tokens, 1 sequence and 1 step"):
        settings(model, **wrong)


def test_steps_on_the_same_tokens_lower_the_loss(model: str) -> None:
    one = OneStep(settings(model, steps=8, lr=3e-3))
    seen = []
    for report in one.run():
        if isinstance(report, Phase) and report.name == "forward_done":
            assert one.loss is not None
            seen.append(one.loss.total.item())
    assert seen[-1] < 0.8 * seen[0]


def test_a_step_that_goes_too_far_is_refused(model: str) -> None:
    with pytest.raises(DivergedError):
        list(OneStep(settings(model, lr=1e30, steps=9)).run())


def test_a_loss_that_is_not_finite_is_refused_before_the_backward_pass(model: str) -> None:
    one = OneStep(settings(model))
    run = one.run()
    while not isinstance(next(run), Trained):
        pass
    with torch.no_grad():
        one.model.base_model.norm.weight.fill_(3e38)  # finite, until it is multiplied by
    seen: list[str] = []
    with pytest.raises(DivergedError, match="The loss is"):
        seen.extend(report.name for report in run if isinstance(report, Phase))
    assert "forward_done" not in seen
