import pytest

from fourge.guard.counters import Reading
from fourge.memory.limit import Limit, limit_of, machine_limit

GIB = 1 << 30


def reading(total: int, available: int, cgroup: tuple[int, int] | None = None) -> Reading:
    limit, used = cgroup or (None, None)
    return Reading(total * GIB, available * GIB, 0, 0, limit, used)


@pytest.mark.parametrize(("total", "floor"), [(128, 8.0), (64, 8.0), (24, 2.4), (2, 0.5)])
def test_it_is_what_is_left_less_a_floor_that_goes_with_the_machine(
    total: int, floor: float
) -> None:
    found = limit_of(reading(total, total - 1), None, None)
    assert found.nbytes == pytest.approx((total - 1 - floor) * GIB, abs=1)


def test_the_source_says_how_it_was_found() -> None:
    assert limit_of(reading(24, 22), None, None).source == (
        "22 GiB left (MemAvailable, of 24 GiB) less a floor of 2.4 GiB"
    )


def test_a_floor_that_is_asked_for_is_kept() -> None:
    assert limit_of(reading(24, 22), None, 5 * GIB).nbytes == 17 * GIB


def test_a_limit_is_of_the_whole_machine() -> None:
    found = limit_of(reading(128, 100), 90 * GIB, None)
    assert found == Limit(62 * GIB, "90 GiB asked for, less 28 GiB in use now")
    assert limit_of(reading(128, 100), 20 * GIB, None).nbytes == 0


def test_a_limit_does_not_lift_the_floor() -> None:
    assert limit_of(reading(128, 100), 127 * GIB, None).nbytes == 92 * GIB


def test_in_a_container_the_smaller_side_counts() -> None:
    found = limit_of(reading(128, 100, (16 * GIB, 4 * GIB)), None, GIB)
    assert found.nbytes == 11 * GIB
    assert "the cgroup's limit of 16 GiB" in found.source


def test_a_full_machine_has_nothing_to_give() -> None:
    assert limit_of(reading(24, 1), None, None).nbytes == 0


def test_this_machine_has_something() -> None:
    assert machine_limit().nbytes > 0
