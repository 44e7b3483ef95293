import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourge.train.budget import LEAST, MOST, STEP, next_weight

sizes = st.floats(1e-6, 1e6)


@given(weight=sizes, kl=sizes)
def test_without_a_budget_or_a_teacher_nothing_changes(weight: float, kl: float) -> None:
    assert next_weight(weight, kl, None, 1.0) == weight
    assert next_weight(weight, None, 0.1, 1.0) == weight


@given(kl=st.floats(0, 1e6), budget=sizes, share=st.floats(LEAST, MOST))
def test_it_moves_towards_the_budget_by_little_and_within_bounds(
    kl: float, budget: float, share: float
) -> None:
    found = next_weight(share * 2.0, kl, budget, 2.0)
    assert LEAST * 2.0 <= found <= MOST * 2.0
    assert found <= share * 2.0 * STEP * 1.000001
    assert found >= share * 2.0 / STEP * 0.999999
    if kl > budget:
        assert found >= share * 2.0 or found == MOST * 2.0
    if kl < budget:
        assert found <= share * 2.0 or found == LEAST * 2.0


def test_a_divergence_that_falls_with_the_weight_settles_at_the_budget() -> None:
    weight = 1.0
    for _ in range(200):
        weight = next_weight(weight, 0.5 / weight, 0.05, 1.0)
    assert 0.5 / weight == pytest.approx(0.05, rel=0.01)
