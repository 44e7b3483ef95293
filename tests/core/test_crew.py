from fourge.core.crew import ALONE


def test_a_crew_of_one_is_its_own_sum() -> None:
    assert ALONE.sums([1.5, 2]) == [1.5, 2]
    assert (ALONE.any(True), ALONE.any(False)) == (True, False)
    assert ALONE.of_first("x") == "x"
    assert (ALONE.rank, ALONE.size, ALONE.here, ALONE.is_first) == (0, 1, 1, True)
