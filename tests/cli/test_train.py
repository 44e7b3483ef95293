import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml  # type: ignore[import-untyped]
from click.testing import CliRunner

from fourge.cli.train import train
from fourge.config.run import Run, load_run
from fourge.core.content import digest_of_path
from fourge.core.errors import FourgeError, OutputError
from fourge.core.events import read_events
from fourge.nvfp4 import compiled
from tests.cli.entry import leaves
from tests.harness.samples import run_of, same_end, tree_of

Folder = Callable[..., Path]


@pytest.fixture(autouse=True)
def _plain_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(compiled, "_can_compile", lambda device: False)
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def model(tiny_folder: Folder) -> Path:
    return tiny_folder("qwen3", tied=True)


def run_file(folder: Path, base: Path, /, **sections: Any) -> Path:
    tree = tree_of(folder, base, **sections)
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path


def test_a_run_without_a_terminal_tells_plain_lines(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run_file(tmp_path, model, train={"save_every_steps": 4})
    assert leaves(monkeypatch, "train", str(path)) == 0
    told = capsys.readouterr()
    said = f"trained 6 steps; the model is in {tmp_path / 'out' / 'export'}"
    assert told.out.split() == said.split()
    lines = told.err.splitlines()
    assert "reading data" in lines
    assert "loading the model" in lines
    steps = [line for line in lines if line.startswith("step ")]
    assert [line.split()[1] for line in steps] == [f"{n}/6" for n in range(1, 7)]
    for word in ("loss", "tok/s", "lr", "norm", "moved"):
        assert word in steps[0]
    assert len([line for line in lines if line.startswith("checkpoint of step")]) == 2
    assert "\x1b" not in told.err + told.out
    assert "\r" not in told.err


def test_json_is_one_document_and_nothing_else(model: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(train, [str(run_file(tmp_path, model)), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {
        "step": 6, "stopped": 0, "export": str(tmp_path / "out" / "export"), "reason": "",
        "digest": digest_of_path(tmp_path / "out" / "export"),
    }  # fmt: skip
    assert "step 1/6" not in result.stderr


def test_a_setting_can_be_given_another_value(model: Path, tmp_path: Path) -> None:
    path = run_file(tmp_path, model)
    args = [str(path), "--json", "--set", "train.steps=2", "--set", "optim.lr=1e-4"]
    result = CliRunner().invoke(train, args)
    assert json.loads(result.stdout)["step"] == 2
    written = Run.from_yaml((tmp_path / "out" / "run.yaml").read_text())
    assert (written.train.steps, written.optim.lr) == (2, 1e-4)
    again = CliRunner().invoke(train, args)
    assert isinstance(again.exception, OutputError)


def test_every_mistake_of_a_run_file_is_told(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run_file(tmp_path, model, train={"stepz": 3, "batch": 0},
                    optim={"lr": "fast", "clip_method": "global"})  # fmt: skip
    assert leaves(monkeypatch, "train", str(path)) == 2
    told = capsys.readouterr().err
    for place in ("train.stepz", "train.batch", "optim.lr", "optim.clip_method"):
        assert place in told
    assert "Traceback" not in told
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("args", [["nowhere.yaml"], [], ["--resume"]])
def test_wrong_words_leave_with_two(
    args: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert leaves(monkeypatch, "train", *args) == 2
    assert capsys.readouterr().err.strip()


def test_a_run_that_diverges_leaves_with_three(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run_file(tmp_path, model, train={"steps": 40}, optim={"lr": 1e9})
    assert leaves(monkeypatch, "train", str(path)) == 3
    told = capsys.readouterr().err
    assert "fourge: " in told
    assert "lower" in told
    assert "Traceback" not in told


def test_there_is_nothing_to_resume_before_a_run(model: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(train, [str(run_file(tmp_path, model)), "--resume"])
    assert isinstance(result.exception, FourgeError)
    assert "holds no run to resume" in str(result.exception)


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def begun(path: Path, *args: str) -> subprocess.Popen[str]:
    script = (
        "from fourge.nvfp4 import compiled; compiled._can_compile = lambda device: False\n"
        "from fourge.cli.main import main; main()"
    )
    return subprocess.Popen(
        [sys.executable, "-c", script, "train", str(path), *args], text=True,
        env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())},  # as here: same sums
        preexec_fn=_heed_interrupts,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def steps_in(out: Path) -> int:
    if not (out / "events.jsonl").exists():
        return 0
    return sum(event["kind"] == "step" for event in read_events(out / "events.jsonl"))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_resume_ends_as_if_there_had_been_none(
    model: Path, tmp_path: Path, number: signal.Signals
) -> None:
    long = {"steps": 60}
    path = run_file(tmp_path / "parts", model, train=long)
    process = begun(path)
    deadline = time.monotonic() + 120
    while process.poll() is None and steps_in(tmp_path / "parts" / "out") < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 128 + number, err
    assert "stopping after this micro-step" in err
    assert "--resume goes on" in out
    assert "Traceback" not in err
    run = load_run(path)
    done = steps_in(run.out)
    assert 2 <= done < 60
    assert [each.name for each in (run.out / "checkpoints").iterdir()] == [f"step-{done:06d}"]

    result = CliRunner().invoke(train, [str(path), "--resume"])
    assert result.exit_code == 0, result.output
    assert f"going on at step {done + 1} of 60" in result.stderr
    whole = run_of(tmp_path / "whole", model, train=long)
    from fourge.harness.training import train as train_run

    list(train_run(whole))
    assert same_end(run, whole)
    again = CliRunner().invoke(train, [str(path), "--resume"])
    assert "the run is complete; the model is exported again" in again.stderr
