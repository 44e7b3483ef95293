import json

import pytest
from click.testing import CliRunner

from fourge.bench import guard
from fourge.bench import nvfp4 as library
from fourge.cli.bench import bench


def test_the_bench_prints_ratios_and_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "SIDE", 64)
    result = CliRunner().invoke(bench, ["nvfp4", "--repeats", "1", "--no-load"])
    assert result.exit_code == 0, result.output
    assert "out.copy_(weight)" in result.stdout
    as_json = CliRunner().invoke(bench, ["nvfp4", "--repeats", "1", "--no-load", "--json"])
    assert json.loads(as_json.stdout)[0]["speed"]["out.copy_(weight)"] == 1.0


def test_the_guards_bench_prints_a_table_and_json(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [guard.Fast("guard", 1, 1, 5 << 20, 2e9, 124)]
    jobs = [guard.Steady("does nothing", 60.0, 0.001, {"killed": 0}, 0)]
    monkeypatch.setattr(guard, "fast", lambda count: runs * count)
    monkeypatch.setattr(guard, "steady", lambda minutes: jobs)
    result = CliRunner().invoke(bench, ["guard", "--runs", "2", "--asked", "0"])
    assert result.exit_code == 0, result.output
    assert "1 x 1 MiB pieces, guard            2  2.0 GB/s" in result.stdout
    assert "0.10% of a core, killed 0" in result.stdout
    as_json = json.loads(
        CliRunner().invoke(bench, ["guard", "--runs", "1", "--asked", "0", "--json"]).stdout
    )
    assert as_json["fast"][0]["past"] == 5 << 20
    assert as_json["steady"][0]["steps"] == {"killed": 0}


def test_the_plan_s_rows_are_printed_as_they_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    from fourge.bench import plan

    settings = {"tokens": 64, "master": "bf16", "moments": "int8", "recompute": "block"}
    row = plan.Compared("smollm2-135m", settings, 110, 98, 100)
    monkeypatch.setattr(plan, "compare", lambda: iter([row]))
    result = CliRunner().invoke(bench, ["plan"])
    assert result.exit_code == 0, result.output
    assert row.row() in result.stdout
    as_json = CliRunner().invoke(bench, ["plan", "--json"])
    assert json.loads(as_json.stdout)[0]["measured"] == 100


def test_decode_prints_what_was_measured_and_json(monkeypatch: pytest.MonkeyPatch) -> None:
    from fourge.bench import decode

    speeds = (decode.Speed(decode.PLAIN, 10, 400), decode.Speed(decode.SINGLE, 25, 100),
              decode.Speed(decode.ALONE, 20, None),
              decode.Speed(decode.BATCH, 250, None))  # fmt: skip
    made = decode.Decoded(speeds, 12.0, 0.3, 0.33, "llama.cpp: not installed")
    monkeypatch.setattr(decode, "measure", lambda rounds: made)
    result = CliRunner().invoke(bench, ["decode"])
    assert result.exit_code == 0, result.output
    assert "2.50 x" in result.stdout
    assert "12.50 x one after the other" in result.stdout
    as_json = json.loads(CliRunner().invoke(bench, ["decode", "--json"]).stdout)
    assert as_json["batch"] == 12.5
    assert as_json["turn_cost"] == pytest.approx(1.1)
