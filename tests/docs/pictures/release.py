"""Release in backward: bytes alive during a backward pass, operation by operation.

The pass is the real one, on the meta device: tensors with shapes and without memory.
"""

from typing import Any

import torch

from fourge.harness.planning import wanted_of_model
from fourge.memory.live import LiveBytes
from fourge.memory.trace import META, _fused_attention, meta_model, there
from fourge.memory.wanted import Wanted
from fourge.train.loss import Weights, head_loss
from tests.docs.pictures import paper

MODEL, TOKENS = "qwen3-4b", 512
POINTS = 400
GIB = float(1 << 30)


class Watched(LiveBytes):
    """Writes down what is alive after every operation."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.series: list[float] = []

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = super().__torch_dispatch__(operation, types, args, kwargs)
        self.series.append(self.now.total / GIB)
        return result


def backward_series(*, release: bool) -> list[float]:
    """GiB alive beside weights, codes and moments, after each operation of a backward pass."""
    wanted = wanted_of_model(MODEL, device="cpu", compute="bfloat16", tokens=TOKENS)
    model = meta_model(wanted, wanted.layers)
    with _fused_attention(), Watched(there(model, wanted.compute)) as live:
        loss = _loss(model, wanted)
        if release:
            for param in model.parameters():
                param.register_post_accumulate_grad_hook(_drop)
        live.series.clear()
        loss.backward()
    series: list[float] = live.series
    return series


def _loss(model: Any, wanted: Wanted) -> torch.Tensor:
    token_BT = torch.empty(wanted.batch, wanted.tokens, dtype=torch.int64, device=META)
    target_T = torch.empty(wanted.positions, dtype=torch.int64, device=META)
    hidden_BTH = model.base_model(input_ids=token_BT, use_cache=False).last_hidden_state
    return head_loss(
        hidden_BTH.flatten(0, 1), model.get_output_embeddings(), target_T, Weights(1.0, 1.0)
    ).total


def _drop(param: torch.Tensor) -> None:
    param.grad = None


def _thinned(series: list[float]) -> list[float]:
    """The highest of every few operations."""
    width = -(-len(series) // POINTS)
    return [max(series[at : at + width]) for at in range(0, len(series), width)]


def draw(figure: Any) -> None:
    axes = figure.subplots()
    for release, name, colour in (
        (False, "gradients kept until the update", paper.RED),
        (True, "each used when it is ready, and freed", paper.BLUE),
    ):
        series = _thinned(backward_series(release=release))
        share = torch.linspace(0, 100, len(series))
        axes.plot(
            share, series, color=colour, linewidth=1.4, label=f"{name}: {max(series):.1f} GiB"
        )
        axes.fill_between(share, series, color=colour, alpha=0.12, linewidth=0)
    paper.plain(axes, f"Backward pass of {MODEL}, {TOKENS} tokens: what is alive beside weights, "
                "codes and moments", "operations done, %", "GiB")  # fmt: skip
    axes.set_xlim(0, 100)
    axes.set_ylim(bottom=0)
    paper.legend(axes, loc="upper left")
