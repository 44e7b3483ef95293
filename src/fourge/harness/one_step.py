"""One training step, phase by phase, with what each phase costs: ``fourge step``.

    start -> model_loaded -> batch_ready -> forward_done -> backward_done -> step_done -> cleanup

After each phase: the process's memory now and at most since the phase before, the device's, what
the machine still has, and the seconds it took. With release the update happens inside the
backward pass, so ``step_done`` follows at once.
"""

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fourge.core.errors import ConfigError
from fourge.core.process import (
    available_bytes,
    peak_bytes,
    reset_peak,
    resident_bytes,
    trim_heap,
)
from fourge.data.batch import whole_batch
from fourge.model.build import load_model
from fourge.model.shapes import SHAPES, random_model, shape_config
from fourge.model.source import open_source
from fourge.model.swap import KEEP_BF16, choose_device, nvfp4_layers, training_dtype
from fourge.nvfp4.gemm import Scheme
from fourge.nvfp4.linear import Nvfp4Linear
from fourge.nvfp4.matrix import Nvfp4Matrix
from fourge.nvfp4.packed import PackedWeight
from fourge.optim.adamw import AdamW
from fourge.optim.masters import MasterFormat
from fourge.optim.moments import MomentFormat
from fourge.train.loss import Loss, Weights
from fourge.train.prepare import prepare_, storage_dtype
from fourge.train.recompute import Recompute
from fourge.train.step import batch_loss, require_finite_loss, target_states

PHASES = ("start", "model_loaded", "batch_ready", "forward_done", "backward_done", "step_done",
          "cleanup")  # fmt: skip
LossName = Literal["ce", "hidden-l1"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSettings:
    """What ``fourge step`` measures."""

    model: str
    random_weights: bool = False
    tokens: int = 64
    batch: int = 1
    steps: int = 1
    master: MasterFormat = "bf16"
    moments: MomentFormat = "int8"
    scheme: Scheme | Literal["none"] = "w4a16"
    loss: LossName = "ce"
    compute: str = "auto"
    device: str = "auto"
    lr: float = 1e-5
    release: bool = True
    recompute: Recompute = "block"
    chunk_rows: int | None = None

    def __post_init__(self) -> None:
        if self.tokens < 2 or self.batch < 1 or self.steps < 1:
            raise ConfigError("A step needs at least 2 tokens, 1 sequence and 1 step.")
        if self.master == "nvfp4" and self.scheme == "none":
            raise ConfigError(
                "Master nvfp4 needs NVFP4 layers.", fix="use the scheme w4a16, or another master"
            )
        if self.model in SHAPES and not self.random_weights:
            raise ConfigError(
                f"{self.model} is a shape, and has no weights.",
                fix="add --random-weights, or give a model's path",
            )


@dataclass(frozen=True, slots=True)
class Phase:
    """Memory is in bytes."""

    name: str
    step: int
    seconds: float
    resident: int
    peak: int  # since the phase before
    device: int
    available: int


@dataclass(frozen=True, slots=True)
class TensorForms:
    """The forms of one tensor that are in memory at once, in bytes."""

    name: str
    shape: tuple[int, ...]
    master: int
    codes: int
    gradient: int  # while it is the one alive
    optimizer: int


@dataclass(frozen=True, slots=True)
class Trained:
    """What a step trains."""

    tensors: int
    elements: int


Report = Phase | Trained


class OneStep:
    """Runs the phases, one at a time."""

    def __init__(self, settings: StepSettings) -> None:
        self.settings = settings
        self.loss: Loss | None = None
        self._started = time.perf_counter()

    def run(self, stop_after: str = "cleanup") -> Iterator[Report]:
        """The phases, in order, up to and including ``stop_after``."""
        if stop_after not in PHASES:
            raise ConfigError(
                f"There is no phase {stop_after!r}.", fix=f"one of: {', '.join(PHASES)}"
            )
        for name, step, do in self._phases():
            do()
            yield self._measured(name, step)
            if name == "model_loaded":
                yield Trained(len(self.named), sum(p.numel() for _, p in self.named))
            if name == stop_after:
                return

    def _phases(self) -> Iterator[tuple[str, int, Callable[[], None]]]:
        yield "start", 0, lambda: None
        yield "model_loaded", 0, self._load
        for step in range(1, self.settings.steps + 1):
            yield "batch_ready", step, self._make_batch
            yield "forward_done", step, self._forward
            yield "backward_done", step, self._backward
            yield "step_done", step, self._step
        yield "cleanup", self.settings.steps, self._cleanup

    def _measured(self, name: str, step: int) -> Phase:
        now = time.perf_counter()
        seconds, self._started = now - self._started, now
        device = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
        phase = Phase(
            name, step, seconds, resident_bytes(), peak_bytes(), device, available_bytes()
        )
        reset_peak()
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        return phase

    def _load(self) -> None:
        s = self.settings
        device, dtype = choose_device(s.device), storage_dtype(s.master)
        if s.random_weights:
            config = shape_config(s.model) if s.model in SHAPES else open_source(s.model).config
            model = random_model(config, dtype).to(device)
        else:
            model = load_model(open_source(s.model), dtype=dtype, device=device)
        compute = training_dtype(s.compute, device)
        self.named = prepare_(
            model, scheme=s.scheme, keep=KEEP_BF16, master=s.master, compute_dtype=compute,
            recompute=s.recompute,
        )  # fmt: skip
        self.model: Any = model
        if s.loss == "hidden-l1":  # which does not reach the head, unless it is the embedding
            reached = {id(p) for p in model.base_model.parameters()}
            self.named = [(name, p) for name, p in self.named if id(p) in reached]
        self.optimizer = AdamW(self.named, lr=s.lr, master=s.master, moments=s.moments, clip=1.0,
                               chunk_rows=s.chunk_rows)  # fmt: skip
        self.optimizer.allocate()
        trim_heap()

    def _make_batch(self) -> None:
        s = self.settings
        generator = torch.Generator().manual_seed(0)
        shape = (s.batch, s.tokens)
        token_BT = torch.randint(self.model.config.vocab_size, shape, generator=generator)
        self.batch = whole_batch(token_BT, "random tokens")

    def _forward(self) -> None:
        if self.settings.loss == "ce":
            self.loss = batch_loss(self.model, self.batch, Weights(1 / self.batch.targets))
        else:
            total = target_states(self.model, self.batch).abs().mean()
            self.loss = Loss(total, total.detach(), torch.zeros(()))
        require_finite_loss(self.loss.total.item(), 1, "random tokens", self.settings.lr)

    def _backward(self) -> None:
        assert self.loss is not None, "forward came before"
        if self.settings.release:
            self.optimizer.backward(self.loss.total)
        else:
            self.loss.total.backward()

    def _step(self) -> None:
        if not self.settings.release:
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.loss = None

    def _cleanup(self) -> None:
        self.model = self.optimizer = None  # type: ignore[assignment]
        self.named = []
        gc.collect()

    def tensor_forms(self) -> Iterator[TensorForms]:
        """Every trained tensor with the forms of it that are resident during a step."""
        layers = {f"{name}.weight": m for name, m in nvfp4_layers(self.model).items()}
        for name, param in self.named:
            state = self.optimizer.state.get(param, {})
            held = sum(t.nbytes for t in state.values() if isinstance(t, Tensor))
            codes = _code_bytes(layers.get(name), param)
            gradient = param.numel() * param.element_size()
            yield TensorForms(name, tuple(param.shape), _master_bytes(param), codes, gradient, held)


def _master_bytes(param: Tensor) -> int:
    if isinstance(param, PackedWeight):
        return Nvfp4Matrix.nbytes_for(*param.matrix.shape)
    return param.numel() * param.element_size()


def _code_bytes(layer: nn.Module | None, param: Tensor) -> int:
    if not isinstance(layer, Nvfp4Linear) or isinstance(param, PackedWeight):
        return 0
    return Nvfp4Matrix.nbytes_for(layer.out_features, layer.in_features)
