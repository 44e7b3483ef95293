"""What no arithmetic knows: measured once, kept per machine and version.

Three constants:

* ``libraries``: the interpreter with torch and transformers, when a model has been loaded;
* ``compiler``: what torch's compiler and the loaded kernels add, from the first use on;
* ``holes``: the share of the holes in the heap that stay (``heap.py``).

The defaults are of the machine of docs/benchmarks.md. ``fourge plan --calibrate`` measures.
"""

import json
import os
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fourge import __version__
from fourge.core.files import user_cache, whole_file

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Machine:
    """Bytes, and a share."""

    libraries: int
    compiler: int
    holes: float
    device_context: int = 600 * MIB  # CUDA's context and libraries; not measured by us
    source: str = "defaults, not calibrated here"


DEFAULT = Machine(libraries=400 * MIB, compiler=115 * MIB, holes=0.7)


def calibration_file() -> Path:
    """Where the constants of this user's machines are kept."""
    return user_cache() / "calibration.json"


def machine_name() -> str:
    """What the constants depend on: the processor, its cores, torch and fourge."""
    return ", ".join(
        [
            _processor(),
            f"{os.cpu_count()} cores",
            f"torch {version('torch')}",
            f"fourge {__version__}",
        ]
    )


def this_machine() -> Machine:
    """The constants measured here, or the defaults."""
    found = _read().get(machine_name())
    return DEFAULT if found is None else Machine(**found)


def keep(machine: Machine) -> Path:
    """Remember the constants of this machine."""
    path = calibration_file()
    everything = {**_read(), machine_name(): asdict(machine)}
    with whole_file(path, overwrite=True) as temporary:
        temporary.write_text(json.dumps(everything, indent=1), encoding="utf-8")
    return path


def _read() -> dict[str, dict[str, Any]]:
    path = calibration_file()
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:  # not ours any more; calibrating again writes it anew
        return {}
    return content if isinstance(content, dict) else {}


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()
