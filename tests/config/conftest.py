from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from fourge.config.run import Run, load_run
from tests.config.samples import Load, tree


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Write a file from sections and read it."""
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text("{}\n")

    def write_and_read(*settings: str, **sections: Any) -> Run:
        (tmp_path / "run.yaml").write_text(yaml.safe_dump(tree(**sections), allow_unicode=True))
        return load_run(tmp_path / "run.yaml", settings)

    return write_and_read
