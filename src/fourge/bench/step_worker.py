"""One side of ``fourge bench step``: makes a model, then runs a step for every line it is sent.

Answers each line with the seconds of the step and the process's peak, above what it held before
the model was loaded (interpreter and libraries).
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from fourge.bench.sides import answer
from fourge.core.process import peak_bytes, reset_peak, resident_bytes
from fourge.data.batch import whole_batch
from fourge.harness.one_step import OneStep, StepSettings
from fourge.model.build import load_model
from fourge.model.embedded import EMBEDDED
from fourge.model.source import open_source
from fourge.train.loss import Weights
from fourge.train.step import batch_loss


def tokens(batch: int, length: int, vocabulary: int) -> torch.Tensor:
    return torch.randint(vocabulary, (batch, length), generator=torch.Generator().manual_seed(0))


def plain_step(batch: int, length: int) -> Callable[[], float]:
    """transformers, float32 weights, torch's fused AdamW, its own loss."""
    model = load_model(open_source(EMBEDDED), dtype=torch.float32).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    token_BT = tokens(batch, length, model.config.vocab_size)

    def step() -> float:
        optimizer.zero_grad()
        loss = model(input_ids=token_BT, labels=token_BT, use_cache=False).loss
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def our_step(batch: int, length: int, **settings: Any) -> Callable[[], float]:
    """NVFP4 weights in forward, bf16 master, int8 moments, release, recompute."""
    one = OneStep(StepSettings(model=EMBEDDED, batch=batch, tokens=length, **settings))
    for _ in one.run("model_loaded"):
        pass
    data = whole_batch(tokens(batch, length, one.model.config.vocab_size))

    def step() -> float:
        loss = batch_loss(one.model, data, Weights(1 / data.targets))
        one.optimizer.backward(loss.total)
        return float(loss.total.detach())

    return step


SIDES: dict[str, Callable[[int, int], Callable[[], float]]] = {
    "plain": plain_step,
    "block": partial(our_step, recompute="block", compute="float32"),
    "light": partial(our_step, recompute="light", compute="float32"),
    "none": partial(our_step, recompute="none", compute="float32"),
    "auto": partial(our_step, recompute="light"),
}


def main() -> None:
    side, batch, length = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    baseline = resident_bytes()
    step = SIDES[side](batch, length)
    for _ in sys.stdin:
        reset_peak()
        start = time.perf_counter()
        loss = step()
        seconds = time.perf_counter() - start
        answer({"seconds": seconds, "peak": peak_bytes() - baseline, "loss": loss})


if __name__ == "__main__":
    main()
