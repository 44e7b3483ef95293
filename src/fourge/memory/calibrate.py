"""Measure on this machine what arithmetic cannot know, by two short training steps.

Each probe is ``fourge step`` in a process of its own, on the embedded model's shape, once with few
tokens and once with many. What the plan knows is taken off what was measured; the rest is the
machine's:

    libraries = held after loading, less the plan's state          (few tokens)
    compiler  = the peak, less the plan's peak without it          (few tokens: hardly a hole)
    holes     = the peak, less the plan's forward phase without    (many tokens)
                any, over the working memory of all blocks
"""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fourge.core.errors import CheckError
from fourge.memory.heap import forward_holes
from fourge.memory.machine import Machine, machine_name
from fourge.memory.plan import plan
from fourge.memory.trace import trace
from fourge.memory.wanted import Wanted
from fourge.model.embedded import EMBEDDED
from fourge.model.source import open_source

FEW, MANY = 64, 1024


@dataclass(frozen=True, slots=True)
class Probe:
    """What two training steps held, in bytes."""

    wanted: Wanted
    loaded: int
    peak: int


def calibrate() -> Machine:
    """Two probes, and the constants that make their plans right."""
    return fitted(probe(FEW), probe(MANY))


def fitted(few: Probe, many: Probe) -> Machine:
    """The constants under which the plans of two probes are what was measured."""
    machine = Machine(libraries=0, compiler=0, holes=0.0, source=f"measured on {machine_name()}")
    libraries = few.loaded - plan(few.wanted, machine).of("prepare")
    machine = replace(machine, libraries=max(0, libraries))
    compiler = few.peak - plan(few.wanted, machine).peak
    machine = replace(machine, compiler=max(0, compiler))
    whole = forward_holes(many.wanted, trace(many.wanted))
    missing = many.peak - plan(many.wanted, machine).of("forward")
    return replace(machine, holes=min(1.5, max(0.0, missing / whole)))


def probe(tokens: int) -> Probe:
    """Take two steps of the embedded model's shape, and see.

    Raises:
        CheckError: the steps failed.
    """
    phases = measure_step(EMBEDDED, tokens=tokens)
    wanted = Wanted(config=open_source(EMBEDDED).config, tokens=tokens)
    loaded = next(phase["resident"] for phase in phases if phase["name"] == "model_loaded")
    return Probe(wanted, loaded, peak=max(phase["peak"] for phase in phases))


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
