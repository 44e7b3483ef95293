from fourge.core.errors import CheckError, FormatError, FourgeError


def test_an_error_says_problem_why_and_fix_in_that_order() -> None:
    error = FormatError("It is broken.", why="it fell", fix="glue it")
    assert str(error) == "It is broken.\n  why: it fell\n  fix: glue it"


def test_parts_that_are_not_given_are_not_printed() -> None:
    assert str(FourgeError("Only this.")) == "Only this."


def test_a_failed_check_leaves_with_one_and_wrong_input_with_two() -> None:
    assert CheckError("x").exit_code == 1
    assert FormatError("x").exit_code == 2
