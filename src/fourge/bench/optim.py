"""``fourge bench optim``: the optimizer alone, against torch's, bitsandbytes' and torchao's.

56.6 million bf16 weights in 24 tensors. Each optimizer has weights, gradients and state of its
own; a peer that is not installed is left out, and said so in the title.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from fourge.bench.interleave import Part, interleaved
from fourge.optim.adamw import AdamW
from fourge.optim.masters import MasterFormat
from fourge.optim.moments import MomentFormat

TENSORS, ROWS, COLUMNS = 24, 768, 3072
FUSED = "torch AdamW(fused), bf16 states"


@dataclass(frozen=True, slots=True)
class Measured:
    """Times, and the bytes of optimizer state per weight."""

    part: Part
    state_bytes: dict[str, float]
    weights: int

    def table(self) -> str:
        lines = [self.part.title]
        for name, seconds in self.part.seconds.items():
            speed = self.weights / seconds / 1e6
            lines.append(
                f"  {name:<32} {speed:>6.0f} M/s {self.part.speed(name):>7.3f} x "
                f"{self.state_bytes[name]:>6.3f} B/weight"
            )
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        return {**self.part.as_dict(), "state_bytes": self.state_bytes, "weights": self.weights}


def parameters(dtype: torch.dtype) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    made = []
    for _ in range(TENSORS):
        weight = torch.randn(ROWS, COLUMNS, generator=generator) * 0.02
        param = nn.Parameter(weight.to(dtype))
        param.grad = (torch.randn(ROWS, COLUMNS, generator=generator) * 1e-3).to(dtype)
        made.append(param)
    return made


def _ours(master: MasterFormat, moments: MomentFormat) -> torch.optim.Optimizer:
    dtype = torch.float32 if master == "fp32" else torch.bfloat16
    return AdamW(parameters(dtype), lr=1e-5, master=master, moments=moments)


def _bitsandbytes() -> torch.optim.Optimizer:
    import bitsandbytes

    made: torch.optim.Optimizer = bitsandbytes.optim.AdamW8bit(parameters(torch.bfloat16), lr=1e-5)
    return made


def _torchao() -> torch.optim.Optimizer:
    from torchao.optim import AdamW8bit

    made: torch.optim.Optimizer = AdamW8bit(
        parameters(torch.bfloat16), lr=1e-5, bf16_stochastic_round=True
    )
    return made


def _fused() -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters(torch.bfloat16), lr=1e-5, fused=True)


def measure(rounds: int) -> Measured:
    """Everything in turn, in one process."""
    makers: dict[str, Callable[[], torch.optim.Optimizer]] = {
        FUSED: _fused,
        "fourge bf16 + int8": lambda: _ours("bf16", "int8"),
        "fourge bf16 + fp32": lambda: _ours("bf16", "fp32"),
        "fourge bf16 + nvfp4": lambda: _ours("bf16", "nvfp4"),
        "fourge bf16+8 + int8": lambda: _ours("bf16+8", "int8"),
        "fourge fp32 + fp32": lambda: _ours("fp32", "fp32"),
        "bitsandbytes AdamW8bit": _bitsandbytes,
        "torchao AdamW8bit": _torchao,
    }
    missing = [name for name in ("bitsandbytes", "torchao") if not find_spec(name)]
    kept = {n: make for n, make in makers.items() if not any(n.startswith(m) for m in missing)}
    optimizers = {name: make() for name, make in kept.items()}
    times = interleaved({name: o.step for name, o in optimizers.items()}, rounds)
    note = f" (not installed: {', '.join(missing)})" if missing else ""
    weights = TENSORS * ROWS * COLUMNS
    title = f"{weights / 1e6:.1f}M weights in {TENSORS} tensors; state in bytes per weight{note}"
    held = {name: _state_bytes(o) / weights for name, o in optimizers.items()}
    return Measured(Part(title, FUSED, times), held, weights)


def _state_bytes(optimizer: torch.optim.Optimizer) -> int:
    return sum(_nbytes(value) for state in optimizer.state.values() for value in state.values())


def _nbytes(value: Any) -> int:
    """Of a tensor; of the codes and scales that one stands for, where it is torchao's."""
    if not isinstance(value, torch.Tensor) or value.dim() == 0:
        return 0
    inner = getattr(value, "tensor_attrs", None)
    if inner is not None:
        return sum(getattr(value, name).nbytes for name in inner)
    return value.nbytes
