from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fourge.harness import saving as module
from fourge.harness.resuming import Begin
from fourge.harness.saving import Saved, Saver


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    now = SimpleNamespace(s=0.0)
    monkeypatch.setattr("fourge.harness.saving.time.monotonic", lambda: now.s)
    return now


def saver(monkeypatch: pytest.MonkeyPatch, first: int = 1, **settings: Any) -> Saver:
    def save(ready: Any, meta: dict[str, Any]) -> Saved:
        return Saved(Path(str(meta["kl_weight"])), meta["step"], 0.0)

    monkeypatch.setattr(module, "_save", save)
    train = SimpleNamespace(**{"save_every_steps": None, "save_every_minutes": 10.0, **settings})
    ready: Any = SimpleNamespace(checked=SimpleNamespace(run=SimpleNamespace(train=train)))
    return Saver(ready, Begin("run", first, 0.5))


def step(number: int, weight: float = 1.0) -> Any:
    return SimpleNamespace(step=number, kl_weight=weight)


def test_a_step_is_saved_once_with_the_weight_it_left(
    monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace
) -> None:
    found = saver(monkeypatch)
    found.save()
    assert found.happened() == []  # nothing was trained
    found.finished(step(3, 2.5))
    found.save()
    found.save()
    assert [(saved.step, saved.path) for saved in found.happened()] == [(3, Path("2.5"))]
    assert found.happened() == []


def test_a_resumed_run_does_not_save_where_it_began(
    monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace
) -> None:
    found = saver(monkeypatch, first=8)
    found.save()
    assert found.done == 7
    assert found.happened() == []


def test_minutes_are_counted_from_the_last_checkpoint(
    monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace
) -> None:
    found = saver(monkeypatch)
    found.finished(step(1))
    clock.s = 599.0
    assert not found.is_due()
    clock.s = 600.0
    assert found.is_due()
    found.save()
    assert not found.is_due()
    clock.s = 1199.0
    assert not found.is_due()


def test_steps_are_counted_from_the_first(
    monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace
) -> None:
    found = saver(monkeypatch, save_every_steps=4)
    due = []
    for number in range(1, 10):
        found.finished(step(number))
        due.append(found.is_due())
    assert [i + 1 for i, each in enumerate(due) if each] == [4, 8]
