import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fourge.bench import decode, sides

FAKE = """
import json, sys
speeds = {"plain": 10.0, "packed": 25.0, "llama": 50.0}
done = set()
for line in sys.stdin:
    job, speed = line.strip(), speeds[sys.argv[1]]
    if sys.argv[2].endswith("refused"):
        sys.exit(1)
    slow = 1 if job in done else 100  # the first round
    done.add(job)
    report = {"memory": {"bytes": int(4000 / speed)},
              "single": {"seconds": slow * 64 / speed, "tokens": 64, "prompt_s": 0},
              "alone": {"seconds": slow * 96 / (speed * 0.9), "tokens": 96, "prompt_s": 0},
              "batch": {"seconds": slow * 2048 / (speed * 9), "tokens": 2048,
                        "prompt_s": slow * 1024 / (speed * 9)},
              "chat": {"seconds": [slow, 1.1, 0.9], "tokens": [40, 30, 30]}}[job]
    print(json.dumps(report), flush=True)
"""


@pytest.fixture(autouse=True)
def made_up_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    def side(name: str, model: object) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", FAKE, name, str(model)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    monkeypatch.setattr(decode, "_side", side)
    monkeypatch.setattr("fourge.api.convert", lambda *args: None)


def test_ratios_are_of_medians_and_the_first_round_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decode, "find_spec", lambda name: None)
    measured = decode.measure(3)
    assert measured.speed(decode.PLAIN) == pytest.approx(10)
    assert measured.speed(decode.SINGLE) == pytest.approx(25)
    assert measured.batch_over_alone == pytest.approx(10)
    assert measured.batch_said == pytest.approx(20)  # half of the time was for the prompts
    assert measured.turn_tokens == pytest.approx(0.3)
    assert measured.turn_time == pytest.approx(0.3)
    assert measured.turn_cost == pytest.approx(1.0)
    assert [each.bytes for each in measured.speeds] == [400, 160, None, None]
    text = list(measured.lines())
    assert "2.50 x" in text[2]
    assert "0.40 x" in text[2]
    assert "not installed" in text[-1]
    assert all(len(line) <= 80 for line in text)


def test_llama_is_asked_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "find_spec", lambda name: object())
    measured = decode.measure(1)
    assert measured.speed(decode.Q4_1) == measured.speed(decode.NVFP4) == pytest.approx(50)
    assert not measured.missing


def test_a_file_that_llama_does_not_read_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "find_spec", lambda name: object())
    monkeypatch.setattr(decode, "embedded_path", lambda: Path("refused"))
    measured = decode.measure(1)
    assert decode.Q4_1 in measured.missing
    assert decode.NVFP4 in {each.name for each in measured.speeds}


def test_sides_are_stopped_when_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "find_spec", lambda name: None)
    stopped: list[Any] = []

    def stop(side: "subprocess.Popen[str]") -> None:
        stopped.append(side)
        sides.stop(side)

    monkeypatch.setattr(decode, "stop", stop)
    monkeypatch.setattr(decode, "_round", lambda sides: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        decode.measure(1)
    assert len(stopped) == 2
