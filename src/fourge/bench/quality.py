"""``fourge bench quality``: does a small master or a packed moment cost any learning?

The embedded model reads the text that Python ships with its own documentation
(``pydoc_data.topics``, half a megabyte). Each pair of formats sees the same batches from the same
start; what differs is the optimizer alone. The yardstick is float32 master and moments.

With NVFP4 weights in forward there is one more difference, of the master's grid and not of the
optimizer: every rounding boundary of NVFP4 is a bf16 number, so two in a hundred bf16 weights lie
exactly on one, and a float32 master resolves all of those ties downhill in its first step.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor

from fourge.data.batch import Batch, whole_batch
from fourge.model.build import load_model
from fourge.model.embedded import EMBEDDED
from fourge.model.source import open_source
from fourge.nvfp4.gemm import Scheme
from fourge.optim.adamw import AdamW
from fourge.optim.masters import MasterFormat
from fourge.optim.moments import MomentFormat
from fourge.optim.schedule import Schedule
from fourge.train.loop import Plan, steps
from fourge.train.prepare import prepare_, storage_dtype

SchemeOrNone = Scheme | Literal["none"]
PAIRS: tuple[tuple[MasterFormat, MomentFormat], ...] = (
    ("fp32", "fp32"), ("bf16", "int8"), ("nvfp4", "nvfp4"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Curve:
    """The loss at every step of one run."""

    master: str
    moments: str
    seed: int
    loss: tuple[float, ...]

    def tenths(self) -> list[float]:
        """The mean of every ten steps: a single batch is noise."""
        ends = range(0, len(self.loss) + 1, max(1, len(self.loss) // 10))
        return [sum(self.loss[a:b]) / (b - a) for a, b in pairwise(ends)]


def text_tokens(tokenizer: Any) -> Tensor:
    from pydoc_data.topics import topics

    text = "\n\n".join(topics[name] for name in sorted(topics))
    return torch.tensor(tokenizer(text)["input_ids"])


def measure(
    count: int, seeds: int, *, scheme: SchemeOrNone, lr: float, batch: int, length: int
) -> Iterator[Curve]:
    """The curves, as they are done."""
    pairs = PAIRS if scheme != "none" else PAIRS[:2]  # there is no pack without NVFP4 layers
    source = open_source(EMBEDDED)
    tokens = text_tokens(source.tokenizer())
    for seed in range(seeds):
        for master, moments in pairs:
            yield _curve(source, tokens, master, moments, seed, count, scheme, lr, batch, length)


def _curve(
    source: Any, tokens: Tensor, master: MasterFormat, moments: MomentFormat, seed: int,
    count: int, scheme: SchemeOrNone, lr: float, batch: int, length: int,
) -> Curve:  # fmt: skip
    # All start from the same bf16 weights, which the wider master then holds exactly.
    model = load_model(source, dtype=torch.bfloat16).to(storage_dtype(master))
    named = prepare_(model, scheme=scheme, master=master, recompute="none")
    optimizer = AdamW(named, lr=lr, master=master, moments=moments, clip=1.0, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(tokens) - length, (count, batch), generator=generator)

    def batches(step: int) -> list[Batch]:
        windows = [tokens[at : at + length] for at in starts[step - 1].tolist()]
        return [whole_batch(torch.stack(windows))]

    plan = Plan(batches, Schedule("cosine", count, warmup=max(1, count // 20)))
    losses = tuple(result.loss for result in steps(model, optimizer, plan))
    return Curve(master, moments, seed, losses)


def gaps(curves: list[Curve]) -> dict[str, list[list[float]]]:
    """For each pair of formats but the first, by seed: how far each tenth is off, relatively."""
    exact = {c.seed: c.tenths() for c in curves if (c.master, c.moments) == PAIRS[0]}
    found: dict[str, list[list[float]]] = {}
    for curve in curves:
        if (curve.master, curve.moments) != PAIRS[0]:
            both = zip(curve.tenths(), exact[curve.seed], strict=True)
            name = f"{curve.master} + {curve.moments}"
            found.setdefault(name, []).append([mine / other - 1 for mine, other in both])
    return found
