"""What this machine can do: each finding is a real attempt, not a version number alone."""

import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

import torch

from fourge.core.errors import FourgeError
from fourge.core.units import size
from fourge.model.embedded import embedded_path
from fourge.nvfp4.compiled import SMALL, has_cpp_compiler
from fourge.nvfp4.gemm import FP4_CAPABILITY, choose_backend
from fourge.nvfp4.linear import Nvfp4Linear
from fourge.nvfp4.matrix import dequantize, fake_quantize, quantize

State = Literal["ok", "note", "fail"]
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
    yield _memory()
    yield _device()
    for subject, attempt in _ATTEMPTS.items():
        yield _tried(subject, attempt)


def _package(name: str) -> Finding:
    try:
        return Finding(name, "ok", version(name))
    except PackageNotFoundError:
        return Finding(name, "fail", f"not installed: pip install {name}")


def _memory() -> Finding:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    free = shutil.disk_usage(".").free
    return Finding("memory", "ok", f"{size(total)} in all; {size(free)} of disk free here")


def _device() -> Finding:
    if not torch.cuda.is_available():
        return Finding("device", "note", "no CUDA device: float32 on the CPU")
    name, capability = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
    fp4 = "FP4 tensor cores" if capability >= FP4_CAPABILITY else "no FP4 tensor cores"
    return Finding("device", "ok", f"{name}, compute capability {capability}, {fp4}")


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
    "NVFP4 kernels": _kernels,
    "one step": _training,
    "default model": _embedded,
}
