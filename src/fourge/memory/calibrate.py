"""Measure on this machine what arithmetic cannot know, by two short training steps.

Each probe is ``fourge step`` in a process of its own, on the smallest shape there is, once with
few tokens and once with many. Between them the plan's own numbers are known, so what is left over
is the machine's:

    libraries = held after loading             - weights and state          (few tokens)
    compiler  = peak of forward and head       - what the plan says, before (few tokens)
    holes     = peak of forward or backward    - what the plan says, before (many tokens)
                over the working memory of all blocks
"""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fourge.core.errors import CheckError
from fourge.memory.machine import DEFAULT, Machine, machine_name
from fourge.memory.plan import plan
from fourge.memory.trace import trace
from fourge.memory.wanted import Wanted
from fourge.model.embedded import EMBEDDED
from fourge.model.source import open_source

FEW, MANY = 64, 1024


@dataclass(frozen=True, slots=True)
class Probe:
    """What a training step held, in bytes."""

    wanted: Wanted
    loaded: int
    forward: int  # peak of forward and head together
    backward: int


def calibrate() -> Machine:
    """Two probes, and the constants that make their plans right."""
    return fitted(probe(FEW), probe(MANY))


def fitted(few: Probe, many: Probe) -> Machine:
    """The constants under which the plans of two probes are what was measured."""
    nothing = Machine(libraries=0, compiler=0, holes=0.0, source=f"measured on {machine_name()}")
    libraries = few.loaded - plan(few.wanted, nothing).of("prepare")
    first = replace(nothing, libraries=libraries)
    compiler = few.forward - plan(few.wanted, first).of("head")
    second = replace(first, compiler=max(0, compiler))
    whole = replace(second, holes=1.0).holes_in(many.wanted, trace(many.wanted))
    expected = plan(many.wanted, second)
    missing = max(many.forward - expected.of("forward"), many.backward - expected.of("backward"))
    holes = missing / whole if many.forward > expected.of("head") else DEFAULT.holes
    return replace(second, holes=min(1.5, max(0.0, holes)))


def probe(tokens: int) -> Probe:
    """Take two steps of the embedded model's shape, and see.

    Raises:
        CheckError: the steps failed.
    """
    phases = measure_step(EMBEDDED, tokens=tokens)
    wanted = Wanted(config=open_source(EMBEDDED).config, tokens=tokens)
    held = {(phase["name"], phase["step"]): phase for phase in phases}
    return Probe(
        wanted,
        loaded=held["model_loaded", 0]["resident"],
        forward=held["forward_done", 2]["peak"],
        backward=held["backward_done", 2]["peak"],
    )


def measure_step(model: str, **settings: Any) -> list[dict[str, Any]]:
    """The phases of two steps with random weights, in a process of their own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "step.json"
        command = [sys.executable, "-m", "fourge", "step", "--model", model, "--random-weights",
                   "--steps", "2", "--json", str(file), *_flags(settings)]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CheckError("A probe step failed.", why=done.stderr.strip()[-400:])
        phases: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["phases"]
    return phases


def _flags(settings: dict[str, Any]) -> list[str]:
    """Settings of ``Wanted`` as the command line of ``fourge step`` has them."""
    flags = ["--no-release"] if settings.get("release") is False else []
    for name, value in settings.items():
        if name != "release":
            flags += [f"--{name.replace('_', '-')}", str(value)]
    return flags
