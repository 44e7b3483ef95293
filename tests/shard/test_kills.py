import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.shard.launch import ended, started


@pytest.mark.slow
@pytest.mark.parametrize(("size", "kills"), [(2, 4)])
def test_a_rank_that_is_killed_ends_the_run_and_the_run_goes_on_as_if_not(
    size: int, kills: int, tiny_folder: Callable[..., Path], tmp_path: Path
) -> None:
    """At random moments, saving among them: everybody left in a minute, one message, same end."""
    command = [sys.executable, "-m", "tests.shard.killed_crew", str(tmp_path),
               str(tiny_folder("qwen3", tied=True)), str(size), str(kills)]  # fmt: skip
    done = ended(started(command))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "kills" in done.stdout
