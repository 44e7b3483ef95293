"""The command, started by torchrun: the record, the model it leaves, ranks that differ."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from fourge.checkpoint.source import open_any
from fourge.config.run import load_run
from fourge.core.events import read_events
from fourge.evaluate.check import Questions, ask
from fourge.evaluate.probes import load_probes
from fourge.harness.training import train
from tests.harness.samples import exported, losses, tree_of
from tests.shard.launch import ended, started, torchrun_argv


def run_file(folder: Path, model: Path) -> Path:
    train_settings = {"steps": 3, "batch": 4, "save_every_steps": 2}
    in_float32 = {"compute_dtype": "float32"}  # sums in another order differ by less than in bf16
    tree = tree_of(folder, model, model=in_float32, train=train_settings, optim={"lr": 1e-5})
    (folder / "run.yaml").write_text(yaml.safe_dump(tree))
    return folder / "run.yaml"


def of_two(*command: str) -> "subprocess.CompletedProcess[str]":
    return ended(started(torchrun_argv(2, "-m", *command)))


@pytest.mark.slow
def test_a_run_on_two_processes_is_the_run_on_one(
    tiny_folder: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = tiny_folder("qwen3", tied=True)
    one, two = run_file(tmp_path / "one", model), run_file(tmp_path / "two", model)
    alone = load_run(one)
    expected = losses(list(train(alone)))
    done = of_two("fourge", "train", str(two), "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["step"] == 3, "one rank reports"
    shared = load_run(two)
    events = list(read_events(shared.out / "events.jsonl"))
    kinds = [event["kind"] for event in events]
    assert kinds == ["planned", "started", "step", "step", "saved", "step", "saved", "finished"]
    found = [event["loss"] for event in events if event["kind"] == "step"]
    assert found == pytest.approx(expected, abs=1e-5)
    assert exported(shared).keys() == exported(alone).keys()
    assert open_any(shared.out).scheme == "w4a16"
    questions = Questions(tuple(load_probes("abilities", ["en"], 2)), (), {})
    checkpoint, export = (ask(str(path), questions, lambda what, done, total: None)
                          for path in (shared.out, shared.out / "export"))  # fmt: skip
    assert checkpoint == export, "what the ranks wrote can be checked"


@pytest.mark.slow
def test_ranks_that_differ_stop_at_the_start_with_the_differences_named(
    tiny_folder: Callable[..., Path], tmp_path: Path
) -> None:
    file = run_file(tmp_path, tiny_folder("qwen3", tied=True))
    (tmp_path / "other.tsv").write_text("when?\tnow\n")
    other = ["optim.lr=2e-4", f"data.mix.0.path={tmp_path / 'other.tsv'}"]
    words = [f"other:{word}" for setting in other for word in ("--set", setting)]
    done = of_two("tests.shard.differing", "train", str(file), *words)
    assert done.returncode != 0
    for said in ("optim.lr: rank 0 has 1e-05, rank 1 has 0.0002", "data: rank 0 has"):
        assert done.stderr.count(said) == 1, done.stderr[-3000:]
    assert not (tmp_path / "out" / "checkpoints").exists()


def test_an_experiment_is_not_for_several_processes(tmp_path: Path) -> None:
    environment: dict[str, Any] = {
        "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "PATH": "/usr/bin:/bin",
    }  # fmt: skip
    environment["PYTHONPATH"] = str(Path(__file__).parents[2] / "src")
    command = [sys.executable, "-m", "fourge", "experiment", str(tmp_path / "e.yaml")]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "runs in one process" in done.stderr
