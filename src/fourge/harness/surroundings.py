"""By what command, with which versions and on what machine a run was made.

For the record, so that a run can be made again and a difference explained. The machine's name and
its user's are not in it: records are sent around.
"""

import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

_PACKAGES = ("torch", "transformers", "compressed-tensors", "safetensors", "numpy")


def surroundings() -> dict[str, Any]:
    """Plain values, as an event holds them."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "command": sys.orig_argv,
        "folder": str(Path.cwd()),
        "versions": {
            "python": platform.python_version(),
            **{package: version(package) for package in _PACKAGES},
        },
        "machine": {
            "system": platform.platform(),
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "memory": memory,
        },
    }
