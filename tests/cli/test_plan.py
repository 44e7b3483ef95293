import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fourge.cli.plan import plan
from fourge.harness import planning
from fourge.memory import calibrate
from fourge.memory.limit import Limit
from fourge.memory.machine import DEFAULT, calibration_file

SHAPE = ["--model", "qwen3-0.6b", "--device", "cpu"]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def invoke(*args: str) -> Result:
    return CliRunner().invoke(plan, list(args))


def test_the_choices_are_the_library_s() -> None:
    from fourge.optim.masters import MASTERS
    from fourge.optim.moments import FORMATS
    from fourge.train.recompute import RECOMPUTE

    choices = {p.name: tuple(getattr(p.type, "choices", ())) for p in plan.params}
    assert choices["master"] == tuple(MASTERS)
    assert choices["moments"] == tuple(FORMATS)
    assert choices["recompute"] == RECOMPUTE


def test_a_plan_that_fits_reads_well() -> None:
    result = invoke(*SHAPE, "--limit", "100GiB")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert sum("<- the peak" in line for line in lines) == 1
    assert lines[-1].startswith("It fits: ")
    for part in ("master weights", "moments", "NVFP4 codes", "largest gradient",
                 "activations kept", "chunk of logits", "interpreter and libraries"):  # fmt: skip
        assert any(line.startswith(part) for line in lines), part


def test_what_does_not_fit_leaves_with_five_and_says_what_would() -> None:
    result = invoke(*SHAPE, "--limit", "5GiB", "--moments", "fp32", "--json")
    assert result.exit_code == 5
    report = json.loads(result.stdout)
    assert not report["fits"]
    assert report["peak"] > report["limit"]["nbytes"] == 5 << 30
    assert report["phases"][report["peak_phase"]] == report["peak"]
    (change,) = report["advice"]["changes"]
    assert change["setting"] == "optim.moments: int8"
    assert change["peak"] <= 5 << 30
    text = invoke(*SHAPE, "--limit", "5GiB", "--moments", "fp32").stdout
    assert "optim.moments: int8 saves" in text
    assert "Then it fits" in text


def test_a_run_file_is_planned_with_its_own_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "machine_limit", lambda asked, floor: Limit(asked + floor, "x"))
    (tmp_path / "a.tsv").write_text("who?\tme\n")
    file = tmp_path / "run.yaml"
    file.write_text(
        "model: {path: smollm2-135m, device: cpu}\n"
        "data: {mix: [{path: a.tsv}], max_tokens: 32}\n"
        "train: {steps: 1}\nmemory: {limit: 90GiB}\nguard: {floor: 2GiB}\nout: o\n"
    )
    result = invoke(str(file), "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["limit"]["nbytes"] == 92 << 30
    assert report["weights"] == 134_515_008
    assert invoke(str(file), "--set", "train.batch=1", "--limit", "1MiB").exit_code == 5


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([], "One thing"),
        (["run.yaml", *SHAPE], "One thing"),
        ([*SHAPE, "--limit", "100GB"], "not a size"),
        ([*SHAPE, "--offload", "cpu"], "Offloading to cpu"),
        ([*SHAPE, "--tokens", "1"], "at least 2 tokens"),
        (["--model", "qwen3-5b"], "does not exist"),
    ],
)
def test_mistakes_are_said(args: list[str], says: str) -> None:
    result = invoke(*args)
    assert isinstance(result.exception, Exception)
    assert says in str(result.exception)


def test_calibrating_is_kept_and_used(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    found = replace(DEFAULT, libraries=1 << 33, source="measured here")
    monkeypatch.setattr(calibrate, "calibrate", lambda: found)
    first = invoke(*SHAPE, "--limit", "100GiB", "--calibrate", "--json")
    assert calibration_file().exists()
    again = invoke(*SHAPE, "--limit", "100GiB", "--json")
    for result in (first, again):
        report: dict[str, Any] = json.loads(result.stdout)
        assert report["constants"] == "measured here"
        assert report["peak"] > 1 << 33


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = invoke(*SHAPE, "--limit", "100GiB", "--picture", str(tmp_path / "p.png"))
    assert result.exit_code == 0, result.output
    assert (tmp_path / "p.png").stat().st_size > 10_000


@pytest.mark.slow
def test_the_plan_of_a_real_step_is_right(tmp_path: Path) -> None:
    """The defaults are one machine's: elsewhere libraries differ, and calibrating is the answer."""
    from fourge.harness.planning import wanted_of_model
    from fourge.memory.calibrate import measure_step
    from fourge.memory.plan import plan as make_plan

    settings: dict[str, Any] = {"tokens": 64, "master": "bf16", "moments": "int8"}
    planned = make_plan(wanted_of_model("smollm2-135m", device="cpu", **settings), DEFAULT).peak
    measured = max(phase["peak"] for phase in measure_step("smollm2-135m", **settings))
    assert planned == pytest.approx(measured, rel=0.12)


@pytest.mark.slow
def test_a_large_model_is_planned_without_its_memory(tmp_path: Path) -> None:
    script = (
        "import sys; from fourge.cli.plan import plan\n"
        "plan(['--model', 'qwen3-32b', '--limit', '1TiB', '--device', 'cpu'], "
        "standalone_mode=False)\n"
        "from fourge.core.process import peak_bytes; sys.exit(peak_bytes() > 1 << 30)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
