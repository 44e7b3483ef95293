"""Commands that start their own guard, as a user meets them."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml  # type: ignore[import-untyped]

from fourge.cli import guarded as module
from fourge.cli.guarded import guard_options, run_under_guard
from fourge.config.run import Run, load_run
from fourge.core.errors import ConfigError
from fourge.core.events import read_events
from fourge.guard.options import guard_argv
from fourge.harness.training import train
from tests.guard.trees import GIB, meminfo, write
from tests.harness.samples import run_of, same_end, tree_of

Folder = Callable[..., Path]
# As the test's own process computes: the same number of threads adds in the same order.
PLAIN = {"TORCH_COMPILE_DISABLE": "1", "OMP_NUM_THREADS": str(torch.get_num_threads())}


def run_file(folder: Path, base: Path, steps: int) -> Path:
    tree = tree_of(folder, base, train={"steps": steps}, guard={"enabled": True})
    (folder / "run.yaml").write_text(yaml.safe_dump(tree))
    return folder / "run.yaml"


def started(argv: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        argv, text=True, env={**os.environ, **PLAIN}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def steps_in(out: Path) -> int:
    events = out / "events.jsonl"
    return sum(e["kind"] == "step" for e in read_events(events)) if events.exists() else 0


def changes(log: Path) -> list[str]:
    kinds = [json.loads(line)["kind"] for line in log.read_text().splitlines()]
    return [kind for kind in kinds if kind not in ("sample", "minute")]


@pytest.mark.slow
def test_train_runs_under_a_guard_that_logs_beside_the_run(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    path = run_file(tmp_path, tiny_folder("qwen3", tied=True), steps=2)
    process = started([sys.executable, "-m", "fourge", "train", str(path), "--json"])
    told, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert json.loads(told)["step"] == 2
    assert "fourge guard: " in said
    log = changes(tmp_path / "out" / "guard.jsonl")
    assert (log[0], log[-1]) == ("start", "end")


@pytest.mark.slow
def test_a_run_that_is_asked_saves_and_resumes_to_the_same_bits(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    base = tiny_folder("qwen3", tied=True)
    path = run_file(tmp_path / "parts", base, steps=60)
    root = write(tmp_path, {"proc/meminfo": meminfo(total=64 * GIB, available=40 * GIB)})
    command = [sys.executable, "-m", "fourge", "train", str(path)]
    options = {"root": str(root), "grace_s": "60", "recover_s": "0"}
    process = started(guard_argv(command, options))
    run = load_run(path)
    deadline = time.monotonic() + 120
    while process.poll() is None and steps_in(run.out) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    write(root, {"proc/meminfo": meminfo(total=64 * GIB, available=8 * GIB + GIB // 4)})
    _, said = process.communicate(timeout=120)
    assert process.returncode == 124, said
    done = steps_in(run.out)
    assert 2 <= done < 60
    assert (run.out / "checkpoints" / f"step-{done:06d}").exists()
    list(train(run, resume=True))
    whole = run_of(tmp_path / "whole", base, train={"steps": 60})
    list(train(whole))
    assert same_end(run, whole)


def test_a_guarded_command_is_not_guarded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "guarded", lambda: True)
    run_under_guard({})


def test_the_guard_runs_the_same_command(monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda path, argv: became.append(argv))
    monkeypatch.setattr(sys, "argv", ["fourge", "train", "run.yaml", "--json"])
    run_under_guard({"floor": "1GiB"})
    (argv,) = became
    assert "--floor=1GiB" in argv
    assert argv[-5:] == [sys.executable, "-m", "fourge", "train", "run.yaml", "--json"][-5:]


def test_another_system_is_told_how_to_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ConfigError, match="this is not Linux"):
        run_under_guard({})


def test_the_run_file_speaks_to_the_guard(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, tmp_path, guard={"floor": "2GiB", "grace_s": 5})
    plain = guard_options(Run.model_validate(tree))
    assert plain == {
        "limit": None, "floor": "2GiB", "over_s": "0.0", "grace_s": "5.0", "silent_s": "1800.0",
        "log": str(tmp_path / "out" / "guard.jsonl"),
    }  # fmt: skip
    tree["memory"] = {"limit": "100GiB"}
    assert guard_options(Run.model_validate(tree))["limit"] == "100GiB"
