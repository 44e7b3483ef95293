import pytest

from fourge.memory import limit
from fourge.memory.limit import GIB, floor_bytes, machine_limit, total_bytes


def test_a_limit_that_is_asked_for_is_the_limit() -> None:
    asked = machine_limit(3 * GIB)
    assert asked.nbytes == 3 * GIB
    assert "asked for" in asked.source


def test_otherwise_it_is_what_is_available_less_a_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit, "available_bytes", lambda: 22 * GIB)
    monkeypatch.setattr(limit, "total_bytes", lambda: 24 * GIB)
    auto = machine_limit(None)
    assert auto.nbytes == 22 * GIB - 24 * GIB // 10
    assert auto.source == "MemAvailable 22 GiB less a floor of 2.4 GiB"


def test_a_full_machine_has_nothing_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit, "available_bytes", lambda: 100)
    assert machine_limit(None).nbytes == 0


@pytest.mark.parametrize(
    ("total", "floor"),
    [(128 * GIB, 8 * GIB), (64 * GIB, 8 * GIB), (24 * GIB, 24 * GIB // 10), (2 * GIB, GIB // 2)],
)
def test_the_floor_goes_with_the_machine(total: int, floor: int) -> None:
    assert floor_bytes(total) == floor


def test_the_machine_has_memory() -> None:
    assert total_bytes() > GIB
