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


def test_decode_prints_what_was_measured_and_json(monkeypatch: pytest.MonkeyPatch) -> None:
    from fourge.bench import decode

    speeds = (decode.Speed(decode.PLAIN, 10, 400), decode.Speed(decode.SINGLE, 25, 100),
              decode.Speed(decode.BATCH, 250, None))  # fmt: skip
    made = decode.Decoded(speeds, 12.0, 0.3, 0.33, "llama.cpp: not installed")
    monkeypatch.setattr(decode, "measure", lambda rounds: made)
    result = CliRunner().invoke(bench, ["decode"])
    assert result.exit_code == 0, result.output
    assert "2.50 x" in result.stdout
    assert "10.00 x the single stream" in result.stdout
    as_json = json.loads(CliRunner().invoke(bench, ["decode", "--json"]).stdout)
    assert as_json["batch"] == 10
    assert as_json["turn_cost"] == pytest.approx(1.1)
