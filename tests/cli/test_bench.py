import json

import pytest
from click.testing import CliRunner

from fourge.bench import nvfp4 as library
from fourge.cli.bench import bench


def test_the_bench_prints_ratios_and_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "SIDE", 64)
    result = CliRunner().invoke(bench, ["nvfp4", "--repeats", "1", "--no-load"])
    assert result.exit_code == 0, result.output
    assert "out.copy_(weight)" in result.stdout
    as_json = CliRunner().invoke(bench, ["nvfp4", "--repeats", "1", "--no-load", "--json"])
    assert json.loads(as_json.stdout)[0]["speed"]["out.copy_(weight)"] == 1.0
