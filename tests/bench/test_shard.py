import subprocess
import sys
from typing import Any

import pytest

from fourge.bench import shard
from fourge.bench.shard import HEADER, Row, compare
from fourge.core.errors import CheckError

MEASURED = [{"peak": 3 << 30, "sent": 5 << 20, "seconds": 1.0},
            {"peak": 4 << 30, "sent": 6 << 20, "seconds": 2.0}]  # fmt: skip


def test_the_rank_that_took_most_stands_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def measured(*args: Any) -> list[dict[str, Any]]:
        asked.append(args)
        return MEASURED

    monkeypatch.setattr(shard, "_measured", measured)
    one, two, plain = compare("qwen3-0.6b", (1, 2), 4, 64)
    assert [args[1:3] for args in asked] == [("w4a16", 1), ("w4a16", 2), ("none", 2)]
    assert (two.peak, two.sent, two.seconds) == (4 << 30, 6 << 20, 2.0)
    assert one.planned_sent == 0 < two.planned_sent < plain.planned_sent
    assert two.planned < one.planned + two.planned_sent  # a plan of a rank, not of them all


def test_a_line_says_how_far_the_plan_is_off() -> None:
    row = Row(2, "w4a16", 4 << 30, 3 << 30, 1 << 30, 2 << 30, 1.0)
    assert row.text().split() == ["2", "w4a16", "4", "GiB", "3", "GiB", "-25.0%", "1", "GiB", "2",
                                  "GiB", "+100.0%"]  # fmt: skip
    alone = Row(1, "w4a16", 4 << 30, 4 << 30, 0, 0, 1.0)
    assert alone.text().split()[-1] == "-"
    assert max(len(line) for line in (HEADER, row.text(), alone.text())) <= 80


def test_ranks_that_fail_are_an_error_with_their_last_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(command: list[str], **how: Any) -> "subprocess.CompletedProcess[str]":
        assert command[0] == sys.executable
        return subprocess.CompletedProcess(command, 1, "", "no memory")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(CheckError, match="2 processes did not finish") as caught:
        list(compare("qwen3-0.6b", (2,), 4, 64))
    assert caught.value.why == "no memory"
