import subprocess
import sys

import pytest

from fourge.bench import sides

DOUBLE = """
import sys
from fourge.bench.sides import answer
for line in sys.stdin:
    answer({"said": line.strip() * 2})
"""


def side(script: str) -> "subprocess.Popen[str]":
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", script], text=True, **pipes)  # type: ignore[call-overload,no-any-return]


def test_a_line_is_a_job_and_a_line_its_answer() -> None:
    process = side(DOUBLE)
    assert sides.ask(process, "ab") == {"said": "abab"}
    assert sides.ask(process, "c") == {"said": "cc"}
    sides.stop(process)
    assert process.returncode is not None


def test_a_side_that_ends_is_an_error_and_not_a_wait() -> None:
    process = side("import sys; sys.stdin.readline()")
    with pytest.raises(RuntimeError, match="ended early"):
        sides.ask(process, "job")
    sides.stop(process)


def test_a_side_is_one_of_our_modules_with_its_arguments() -> None:
    process = sides.start("fourge.bench.step_worker", "plain", 1, 8)
    assert process.args == [sys.executable, "-m", "fourge.bench.step_worker", "plain", "1", "8"]
    sides.stop(process)
