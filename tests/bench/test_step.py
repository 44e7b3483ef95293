import subprocess
import sys

import pytest

from fourge.bench import step, step_worker

ECHO = """
import json, sys
for count, _ in enumerate(sys.stdin):
    seconds = {"plain": 2.0}.get(sys.argv[1], 1.0) + (100 if count == 0 else 0)
    print(json.dumps({"seconds": seconds, "peak": 1000 + count, "loss": 0.0}), flush=True)
"""


def test_the_first_step_does_not_count_and_the_highest_peak_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def worker(key: str, batch: int, length: int) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", ECHO, key]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    monkeypatch.setattr(step, "_worker", worker)
    plain, *ours = step.measure(3, 8, 96)
    assert (plain.seconds, plain.peak) == (2.0, 1003)
    assert [side.seconds for side in ours] == [1.0] * 4
    assert "0.50 x" in ours[0].row(plain)
    assert all(len(side.row(plain)) <= 80 for side in ours)
    assert step.NAMES.keys() == step_worker.SIDES.keys()


def test_a_side_that_ends_early_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def worker(key: str, batch: int, length: int) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", "import sys; sys.stdin.readline()"]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    monkeypatch.setattr(step, "_worker", worker)
    with pytest.raises(RuntimeError, match="ended early"):
        step.measure(1, 8, 96)
