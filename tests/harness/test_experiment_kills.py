import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.slow
def test_an_experiment_that_is_killed_again_and_again_ends_in_the_same_export(
    tiny_folder: Callable[..., Path], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "tests.harness.killed_experimenter", str(tmp_path),
               str(tiny_folder("qwen3", tied=True))]  # fmt: skip
    done = subprocess.run(command, check=False, timeout=240, cwd=Path(__file__).parents[2],
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) >= 6
