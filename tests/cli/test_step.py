import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fourge.cli.step import PHASES, step
from fourge.core.errors import ConfigError, DivergedError, FormatError
from fourge.harness import one_step
from fourge.nvfp4 import compiled

Folder = Callable[..., Path]


@pytest.fixture(autouse=True)
def _plain_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_can_compile", lambda device: False)


@pytest.fixture
def model(tiny_folder: Folder) -> str:
    return str(tiny_folder("llama"))


def invoke(model: str, *args: str) -> Result:
    return CliRunner().invoke(step, ["--model", model, "--tokens", "12", *args])


def test_the_choices_are_the_library_s() -> None:
    from fourge.optim.masters import MASTERS
    from fourge.optim.moments import FORMATS
    from fourge.train.recompute import RECOMPUTE

    choices = {p.name: tuple(getattr(p.type, "choices", ())) for p in step.params}
    assert PHASES == one_step.PHASES == choices["stop_after"]
    assert choices["master"] == tuple(MASTERS)
    assert choices["moments"] == tuple(FORMATS)
    assert choices["recompute"] == RECOMPUTE


def test_every_phase_has_a_line(model: str) -> None:
    result = invoke(model)
    assert result.exit_code == 0, result.output
    named = [line.split()[0] for line in result.stdout.splitlines() if line and line[0] != " "]
    assert named == ["phase", *PHASES, "peak"]
    assert re.search(r"trains [\d,]+ elements in 21 tensors", result.stdout)


def test_it_stops_where_it_is_told_to(model: str) -> None:
    result = invoke(model, "--stop-after", "batch_ready")
    assert "batch_ready" in result.stdout
    assert "forward_done" not in result.stdout


@pytest.mark.parametrize("last", ["cleanup", "backward_done", "model_loaded"])
def test_the_report_is_written_as_json(model: str, tmp_path: Path, last: str) -> None:
    file = tmp_path / "report.json"
    result = invoke(model, "--json", str(file), "--tensor-bytes", "--stop-after", last,
                    "--moments", "nvfp4", "--no-release", "--recompute", "light")  # fmt: skip
    assert result.exit_code == 0, result.output
    content = json.loads(file.read_text())
    assert [phase["name"] for phase in content["phases"]] == list(PHASES[: PHASES.index(last) + 1])
    assert content["peak"] == max(phase["peak"] for phase in content["phases"])
    settings = content["settings"]
    assert (settings["moments"], settings["release"], settings["recompute"]) == (
        "nvfp4", False, "light",
    )  # fmt: skip
    assert settings["tokens"] == 12
    assert content["trained"]["tensors"] == len(content["tensors"]) == 21
    elements = 0
    for form in content["tensors"]:
        count = 1
        for side in form["shape"]:
            count *= side
        elements += count
        assert form["master"] == form["gradient"] == 2 * count
        assert form["name"] in result.stdout
    assert elements == content["trained"]["elements"]


def test_hidden_l1_does_not_train_the_head(model: str, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    result = invoke(model, "--loss", "hidden-l1", "--json", str(file), "--tensor-bytes")
    assert result.exit_code == 0, result.output
    content = json.loads(file.read_text())
    assert content["trained"]["tensors"] == 20
    assert not any(form["name"] == "lm_head.weight" for form in content["tensors"])


def test_a_shape_needs_random_weights() -> None:
    result = CliRunner().invoke(step, ["--model", "qwen3-8b"])
    assert isinstance(result.exception, ConfigError)
    assert "--random-weights" in str(result.exception)


def test_wrong_input_is_refused(model: str) -> None:
    assert invoke(model, "--master", "int3").exit_code == 2
    assert invoke(model, "--stop-after", "never").exit_code == 2
    assert invoke(model, "--chunk-rows", "0").exit_code == 2
    assert isinstance(invoke(model, "--batch", "0").exception, ConfigError)
    assert isinstance(invoke("/nowhere/at/all").exception, FormatError | ConfigError)


def test_a_step_that_diverges_has_status_three(model: str) -> None:
    result = invoke(model, "--lr", "1e30", "--steps", "9")
    assert isinstance(result.exception, DivergedError)
    assert result.exception.exit_code == 3
