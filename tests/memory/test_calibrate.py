import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fourge.core.errors import CheckError
from fourge.memory import calibrate as module
from fourge.memory.calibrate import Probe, calibrate, fitted, measure_step
from fourge.memory.machine import MIB, Machine
from fourge.memory.plan import plan
from tests.memory.samples import wanted

TRUTH = Machine(libraries=350 * MIB, compiler=90 * MIB, holes=0.4)
FEW, MANY = wanted(tokens=4, layers=40), wanted(tokens=512, layers=40)


def probed(asked: Any) -> Probe:
    made = plan(asked, TRUTH)
    return Probe(asked, loaded=made.of("prepare"), peak=made.peak)


def test_the_constants_of_a_machine_are_found_again() -> None:
    assert plan(MANY, TRUTH).peak_phase == "forward"
    found = fitted(probed(FEW), probed(MANY))
    assert found.libraries == TRUTH.libraries
    assert found.compiler == pytest.approx(TRUTH.compiler, rel=0.02)
    assert found.holes == pytest.approx(TRUTH.holes, rel=0.1)
    assert "measured on" in found.source
    for asked in (FEW, MANY):
        assert plan(asked, found).peak == pytest.approx(plan(asked, TRUTH).peak, rel=0.001)


def test_nothing_is_ever_negative() -> None:
    found = fitted(Probe(FEW, 0, 0), Probe(MANY, 0, 0))
    assert (found.libraries, found.compiler, found.holes) == (0, 0, 0.0)


def test_a_probe_is_a_step_in_its_own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **rest: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        phases = [{"name": "model_loaded", "step": 0, "resident": 3, "peak": 4},
                  {"name": "forward_done", "step": 2, "resident": 5, "peak": 9}]  # fmt: skip
        file = Path(command[command.index("--json") + 1])
        file.write_text(json.dumps({"phases": phases}))
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", run)
    found = module.probe(64)
    assert (found.loaded, found.peak, found.wanted.tokens) == (3, 9, 64)
    measure_step("a-model", tokens=8, master="bf16+8", release=False)
    assert commands[1][-5:] == ["--no-release", "--tokens", "8", "--master", "bf16+8"]
    calibrate()
    assert [c[c.index("--tokens") + 1] for c in commands[2:]] == ["64", "1024"]


def test_a_probe_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **rest: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 2, stderr="no such model")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(CheckError, match="no such model"):
        measure_step("a-model", tokens=8)
