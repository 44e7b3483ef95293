import subprocess
import sys
import time
from pathlib import Path

import pytest

from fourge.bench import guard_victim
from fourge.bench.guard_victim import MIB, SLOT


def test_filling_is_counted_by_each_child_and_ends_at_the_most(tmp_path: Path) -> None:
    counters = tmp_path / "counters"
    counters.write_bytes(bytes(2 * SLOT.size))
    command = [sys.executable, "-m", "fourge.bench.guard_victim", "fill", str(counters), "2", "8"]
    with subprocess.Popen([*command, "40"]) as process:
        while sum(slot[0] for slot in SLOT.iter_unpack(counters.read_bytes())) < 40 * MIB:
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(0.1)
        assert [slot[0] for slot in SLOT.iter_unpack(counters.read_bytes())] == [20 * MIB] * 2
        process.kill()


def test_a_breath_is_taken_whole_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    touched = []
    monkeypatch.setattr(guard_victim, "_touch", lambda held, start, size: touched.append(size))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    guard_victim.breathe(4 * MIB + 5, 0.001)
    assert set(touched) == {4 * MIB + 5}
