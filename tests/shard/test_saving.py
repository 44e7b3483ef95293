import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.shard.launch import ended, started


@pytest.mark.slow
def test_a_checkpoint_of_any_number_of_ranks_is_that_of_any_other(
    tiny_folder: Callable[..., Path], tmp_path: Path
) -> None:
    """1 -> 2 -> 1 -> 2 -> 4 -> 3 -> 1, of packed and of exact moments: every bit."""
    command = [sys.executable, "-m", "tests.shard.resharding", str(tmp_path),
               str(tiny_folder("qwen3", tied=True)), "bf16+8,int8", "bf16,nvfp4"]  # fmt: skip
    done = ended(started(command))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "the same bits" in done.stdout
