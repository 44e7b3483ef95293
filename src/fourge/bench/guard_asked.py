"""Part of ``fourge bench guard``: does a run that is asked to leave lose anything?

A small model is trained under the guard, which reads a machine that is made up: when some steps
are done, memory is said to be nearly gone. The run has to save and leave, and, resumed, has to end
in the weights of the run that nobody disturbed, bit for bit.
"""

import hashlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import yaml  # type: ignore[import-untyped]
from transformers import LlamaConfig, LlamaForCausalLM

from fourge.core.events import FILE, read_events
from fourge.guard.options import guard_argv
from fourge.guard.watch import STOPPED
from fourge.model.embedded import EMBEDDED
from fourge.model.source import open_source

GIB = 1 << 30
STEPS = 40
_ROWS = 30


@dataclass(frozen=True, slots=True)
class Asked:
    """One run that was asked to leave."""

    after: int  # steps
    status: int
    same: bool  # as the run that nobody disturbed

    @property
    def good(self) -> bool:
        return self.status == STOPPED and self.same


def asked(runs: int, folder: Path) -> Iterator[Asked]:
    """So many runs, each asked at another moment."""
    model = _small_model(folder / "model")
    (folder / "rows.jsonl").write_text(
        "".join(f'{{"prompt": "{i} + {i}?", "response": "{2 * i}"}}\n' for i in range(_ROWS)),
        encoding="utf-8",
    )
    whole = _run_file(folder / "whole", model)
    _train(whole)
    expected = _weights(whole)
    moments = random.Random(0)
    for number in range(runs):
        path = _run_file(folder / f"asked-{number}", model)
        status = _asked(path, moments.randint(1, STEPS // 2))
        after = _steps_done(path)
        _train(path, "--resume")
        yield Asked(after, status, _weights(path) == expected)


def _small_model(folder: Path) -> Path:
    source = open_source(EMBEDDED)
    config = LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, vocab_size=source.config.vocab_size, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    source.write_tokenizer(folder)
    return folder


def _run_file(folder: Path, model: Path) -> Path:
    folder.mkdir()
    settings = {
        "model": {"path": str(model)},
        "data": {"mix": [{"path": str(folder.parent / "rows.jsonl")}]},
        "train": {"steps": STEPS, "batch": 2},
        "out": str(folder / "out"),
    }
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path


def _command(path: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "fourge", "train", str(path), *more]


def _train(path: Path, *more: str) -> None:
    """To the end, without a guard."""
    command = _command(path, "--set", "guard.enabled=false", *more)
    subprocess.run(command, check=True, capture_output=True)


def _asked(path: Path, after: int) -> int:
    """Under a guard, until it had to leave; the guard's status."""
    root = path.parent / "machine"
    _say_left(root, 40 * GIB)
    argv = guard_argv(_command(path), {"root": str(root), "grace_s": "60", "recover_s": "0"})
    guard = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while guard.poll() is None and _steps_done(path) < after:
        time.sleep(0.02)
    _say_left(root, 8 * GIB + GIB // 8)
    return guard.wait()


def _say_left(root: Path, nbytes: int) -> None:
    """What the guard's machine of 64 GiB has left, from now on."""
    path = root / "proc/meminfo"
    path.parent.mkdir(parents=True, exist_ok=True)
    kib = nbytes // 1024
    text = (
        f"MemTotal: {64 * GIB // 1024} kB\nMemFree: {kib} kB\n"
        f"MemAvailable: {kib:>12} kB\nSwapFree: 0 kB\n"
    )
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.pwrite(descriptor, text.encode(), 0)  # in place: the guard keeps the file open
    os.ftruncate(descriptor, len(text))
    os.close(descriptor)


def _steps_done(path: Path) -> int:
    events = path.parent / "out" / FILE
    if not events.exists():
        return 0
    return max((e["step"] for e in read_events(events) if e["kind"] == "step"), default=0)


def _weights(path: Path) -> str:
    with (path.parent / "out/export/model.safetensors").open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
