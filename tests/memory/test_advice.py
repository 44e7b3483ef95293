import pytest
import torch

from fourge.core.errors import ConfigError
from fourge.memory.advice import advise, refuse_offload
from fourge.memory.machine import Machine
from fourge.memory.plan import plan
from tests.memory.samples import wanted

BARE = Machine(libraries=0, compiler=0, holes=0.0)


def test_a_run_that_fits_needs_no_change() -> None:
    asked = wanted()
    advice = advise(asked, BARE, plan(asked, BARE).peak)
    assert (advice.changes, advice.short) == ((), 0)


def test_the_cheapest_change_comes_first_and_no_more_than_are_needed() -> None:
    asked = wanted(layers=6, moments="fp32")
    peak = plan(asked, BARE).peak
    advice = advise(asked, BARE, peak - 1)
    (change,) = advice.changes
    assert change.setting == "optim.moments: int8"
    assert "nothing measured" in change.price
    assert change.saves == peak - change.peak > 0
    assert change.peak == plan(wanted(layers=6, moments="int8"), BARE).peak


def test_each_change_is_planned_on_top_of_those_before_it() -> None:
    asked = wanted(layers=6, moments="fp32", recompute="none", release=False, tokens=128)
    advice = advise(asked, BARE, 1)
    settings = [change.setting for change in advice.changes]
    assert settings[0] == "optim.moments: int8"
    assert settings.index("train.recompute: light") < settings.index("train.recompute: block")
    assert settings.index("train.recompute: block") < settings.index("data.max_tokens: 64")
    assert "train.release: true" in settings
    peaks = [plan(asked, BARE).peak, *(change.peak for change in advice.changes)]
    assert peaks == sorted(peaks, reverse=True)
    assert all(a - b == c.saves for a, b, c in zip(peaks, peaks[1:], advice.changes, strict=False))
    assert advice.short == peaks[-1] - 1


def test_a_batch_is_halved_before_rows_are_cut() -> None:
    asked = wanted(layers=2, batch=4, tokens=128, moments="nvfp4", loss_chunk=16)
    limit = plan(wanted(layers=2, batch=1, tokens=128, moments="nvfp4", loss_chunk=16), BARE).peak
    settings = [change.setting for change in advise(asked, BARE, limit).changes]
    assert settings == ["train.batch: 2", "train.batch: 1"]


def test_a_packed_master_is_not_offered_without_nvfp4_layers() -> None:
    advice = advise(wanted(layers=4, scheme="none"), BARE, 1)
    assert not [change for change in advice.changes if "nvfp4" in change.setting[:20]
                and "master" in change.setting]  # fmt: skip


def test_offloading_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="one pool of memory"):
        refuse_offload("cpu")


@pytest.mark.parametrize(("integrated", "says"), [(True, "saves nothing"), (False, "not offered")])
def test_it_depends_on_whether_the_device_has_its_own_memory(
    monkeypatch: pytest.MonkeyPatch, integrated: bool, says: str
) -> None:
    class Properties:
        is_integrated = integrated

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties())
    with pytest.raises(ConfigError, match=says):
        refuse_offload("cpu")
