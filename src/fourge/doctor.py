"""What this machine can do: each finding is a real attempt, not a version number alone."""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import torch

from fourge.core.errors import FourgeError
from fourge.core.events import read_events
from fourge.core.units import size
from fourge.guard.counters import Counters
from fourge.guard.options import guard_argv
from fourge.guard.policy import default_floor, margins
from fourge.guard.watch import STOPPED
from fourge.memory.meter import Memory
from fourge.memory.nvml import devices
from fourge.model.embedded import embedded_path
from fourge.model.swap import training_dtype
from fourge.nvfp4.compiled import SMALL, has_cpp_compiler
from fourge.nvfp4.gemm import FP4_CAPABILITY, choose_backend
from fourge.nvfp4.linear import Nvfp4Linear
from fourge.nvfp4.matrix import dequantize, fake_quantize, quantize

State = Literal["ok", "note", "fail"]
_KINDS = {"cpu": "no GPU", "gpu": "a GPU with its own memory", "unified": "one pool with the GPU"}
_TOY_ROOM = 1 << 28
_PACKAGES = ("torch", "transformers", "compressed-tensors", "gguf", "safetensors")


@dataclass(frozen=True, slots=True)
class Finding:
    subject: str
    state: State
    text: str


def examine() -> Iterator[Finding]:
    """Findings one by one, as they are made."""
    yield Finding("system", "ok", f"{platform.system()} {platform.machine()}, Python "
                  f"{platform.python_version()}, {os.cpu_count()} cores")  # fmt: skip
    for package in _PACKAGES:
        yield _package(package)
    for subject, attempt in _ATTEMPTS.items():
        yield _tried(subject, attempt)


def _package(name: str) -> Finding:
    try:
        return Finding(name, "ok", version(name))
    except PackageNotFoundError:
        return Finding(name, "fail", f"not installed: pip install {name}")


def _memory() -> tuple[State, str]:
    with Counters() as counters:
        memory = Memory(counters.read(), devices())
        levels = sum(name.endswith("memory.stat") for name in counters.sources())
    counted = f"/proc/meminfo and {levels} levels of cgroups" if levels else "/proc/meminfo"
    left = f"{size(memory.left)} left ({memory.source()}), by {counted}"
    if memory.left_for_device is not None:
        left += f"; a GPU can count on {size(memory.left_for_device)}"
    return "ok", f"{_KINDS[memory.kind]}; {left}"


def _limit() -> tuple[State, str]:
    with Counters() as counters:
        reading = counters.read()
    floor = default_floor(reading.capacity)
    used = size(reading.left - floor) if reading.left > floor else "nothing"
    return "ok", f"a run may take {used} now: what is left less a floor of {size(floor)}"


def _disk() -> tuple[State, str]:
    return "ok", f"{size(shutil.disk_usage('.').free)} free here"


def _device() -> tuple[State, str]:
    if not torch.cuda.is_available():
        dtype = str(training_dtype("auto", torch.device("cpu"))).removeprefix("torch.")
        return "note", f"no CUDA device: training in {dtype} on the CPU"
    name, capability = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
    fp4 = "FP4 tensor cores" if capability >= FP4_CAPABILITY else "no FP4 tensor cores"
    return "ok", f"{name}, compute capability {capability}, {fp4}"


def _rehearsal() -> tuple[State, str]:
    """A toy job takes four times what there is to its line; the guard has to be faster."""
    with Counters() as counters:
        reading = counters.read()
    room = _TOY_ROOM + sum(margins(reading.capacity))  # well beyond what it would be warned at
    floor = reading.left - room
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "guard.jsonl"
        options = {"floor": f"{floor >> 20}MiB", "grace_s": "0", "recover_s": "5", "log": str(log)}
        toy = [sys.executable, "-c", f"held = b'x' * {4 * room}; import time; time.sleep(9)"]
        done = subprocess.run(guard_argv(toy, options), capture_output=True, text=True, timeout=60)
        ends = (
            [event for event in read_events(log) if event["kind"] == "end"] if log.exists() else []
        )
    if done.returncode != STOPPED or not ends:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return "fail", f"a toy job was not stopped, status {done.returncode}: {last}"
    return "ok", f"a toy job was stopped {size(max(0, floor - ends[0]['lowest']))} past its line"


def _tried(subject: str, attempt: Callable[[], tuple[State, str]]) -> Finding:
    try:
        return Finding(subject, *attempt())
    except FourgeError as error:
        return Finding(subject, "fail", f"{error.problem} {error.fix}".strip())
    except Exception as error:  # the doctor reports what others would crash on
        return Finding(subject, "fail", f"{type(error).__name__}: {error}")


def _kernels() -> tuple[State, str]:
    if not has_cpp_compiler():
        return "note", "no C++ compiler: NVFP4 runs uncompiled, about 10 x slower (install g++)"
    weight = torch.randn(2, SMALL * 16).view(-1, 64)
    plain, fast = quantize(weight, kernel="reference"), quantize(weight)
    same = torch.equal(plain.packed_RC, fast.packed_RC) and torch.equal(
        dequantize(fast), fake_quantize(weight)
    )
    return ("ok", "compiled, equal to the reference bit for bit") if same else (
        "fail", "the compiled kernels differ from the reference: please report this")  # fmt: skip


def _training() -> tuple[State, str]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    backend = choose_backend("auto", "w4a4", device)
    layer = Nvfp4Linear(torch.nn.Linear(64, 32), scheme="w4a16", backend="dequant").to(device)
    before = layer.codes().packed_RC.clone()
    layer(torch.randn(4, 64, device=device)).square().sum().backward()
    torch.optim.SGD(layer.parameters(), lr=0.1).step()
    moved = not torch.equal(before, layer.codes().packed_RC)
    state: State = "ok" if moved else "fail"
    return state, f"a layer {'learned' if moved else 'did not move'}; w4a4 would use {backend}"


def _embedded() -> tuple[State, str]:
    return "ok", embedded_path().name


_ATTEMPTS: dict[str, Callable[[], tuple[State, str]]] = {
    "memory": _memory,
    "limit": _limit,
    "guard": _rehearsal,
    "disk": _disk,
    "device": _device,
    "NVFP4 kernels": _kernels,
    "one step": _training,
    "default model": _embedded,
}
