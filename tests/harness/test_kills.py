import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_run_that_is_killed_fifty_times_ends_as_if_it_had_not_been(
    tiny_folder: Callable[..., Path], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "tests.harness.killed_trainer", str(tmp_path),
               str(tiny_folder("qwen3", tied=True))]  # fmt: skip
    done = subprocess.run(command, check=False, timeout=240, cwd=Path(__file__).parents[2],
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("50 kills")
