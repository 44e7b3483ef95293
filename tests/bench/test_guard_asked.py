from pathlib import Path

import pytest

from fourge.bench.guard_asked import Asked, asked


@pytest.mark.parametrize(
    ("status", "same", "good"), [(124, True, True), (124, False, False), (0, True, False)]
)
def test_only_a_run_that_was_stopped_and_lost_nothing_is_good(
    status: int, same: bool, good: bool
) -> None:
    assert Asked(3, status, same).good is good


@pytest.mark.slow
@pytest.mark.model
def test_a_run_that_is_asked_loses_nothing(tmp_path: Path) -> None:
    (one,) = asked(1, tmp_path)
    assert one.good
    assert one.after > 0
