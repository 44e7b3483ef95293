"""What a record says of where it was made."""

import json
import os
import subprocess
import sys
from pathlib import Path

import torch

from fourge.harness.surroundings import surroundings


def test_it_holds_the_command_as_it_was_given(tmp_path: Path) -> None:
    script = (
        "import json\n"
        "from fourge.harness.surroundings import surroundings\n"
        "print(json.dumps(surroundings()))"
    )
    command = [sys.executable, "-c", script, "運行.yaml", "--set", "a b"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    found = json.loads(done.stdout)
    assert found["command"] == command
    assert found["folder"] == str(tmp_path.resolve())


def test_versions_and_machine_are_those_that_run() -> None:
    found = surroundings()
    assert found["versions"]["torch"] == torch.__version__
    assert found["versions"]["python"] == sys.version.split()[0]
    assert found["machine"]["cores"] == os.cpu_count()
    assert found["machine"]["memory"] > 1 << 28
