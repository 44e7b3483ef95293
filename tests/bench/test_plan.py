from typing import Any

import pytest

from fourge.bench import plan as module
from fourge.bench.plan import CASES, Compared, compare
from fourge.memory.limit import Limit
from fourge.optim.masters import MASTERS
from fourge.optim.moments import FORMATS
from fourge.train.recompute import RECOMPUTE


def test_there_are_enough_cases_and_every_form_is_among_them() -> None:
    assert len(CASES) >= 12
    settings = [settings for _, settings in CASES]
    assert {each["master"] for each in settings} == set(MASTERS)
    assert {each["moments"] for each in settings} == set(FORMATS)
    assert {each["recompute"] for each in settings} == set(RECOMPUTE)
    assert len({each["tokens"] for each in settings}) >= 4


def test_each_case_is_planned_and_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    def measure(model: str, **settings: Any) -> list[dict[str, Any]]:
        asked.append((model, settings))
        return [{"peak": 5}, {"peak": 1 << 30}, {"peak": 7}]

    monkeypatch.setattr(module, "CASES", CASES[6:7])
    monkeypatch.setattr(module, "measure_step", measure)
    monkeypatch.setattr(module, "machine_limit", lambda: Limit(1 << 40, "x"))
    (row,) = compare()
    assert asked == [CASES[6]]
    assert row.measured == 1 << 30
    assert row.plain > 2 << 30
    monkeypatch.setattr(module, "machine_limit", lambda: Limit(1 << 30, "x"))
    (row,) = compare()
    assert row.measured is None
    assert "not run" in row.row()


def test_a_row_says_how_far_each_plan_is_off() -> None:
    settings = {"tokens": 64, "master": "bf16", "moments": "int8", "recompute": "block"}
    text = Compared("smollm2-135m", settings, 110, 98, 100).row()
    assert "+10.0%" in text
    assert "-2.0%" in text
