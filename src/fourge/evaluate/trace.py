"""One model, watched while it reads a prompt and goes on with it.

Kept are the state after the embedding, after every block and after the last norm, the logits after
every token of the prompt, and those after each of the tokens that follow. They are small beside a
model, so that two models can be compared with one of them in memory at a time.

What follows the prompt is fed token by token through the cache, as in a chat. The first model takes
its own likeliest tokens; the second is ``told`` those, and says at each place what it would have
taken. Up to the first place where they part that is what it says by itself; after it, both still
speak of the same text, and every place counts.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fourge.chat.feed import Feed


@dataclass(frozen=True, slots=True)
class Trace:
    """What a model computed: T tokens of prompt, N after it, H wide, V in the vocabulary."""

    states: dict[str, Tensor]  # by place, each [T, H]
    logits_TV: Tensor
    logits_NV: Tensor
    chosen: tuple[int, ...]  # the likeliest token at each of the N places


def trace(model: Any, prompt: Sequence[int], tokens: int, told: Sequence[int] = ()) -> Trace:
    """Run a model over a prompt and ``tokens`` more: its own choice, or what it is told.

    Raises:
        FormatError: a logit is not finite.
    """
    states: dict[str, Tensor] = {}
    feed = Feed(model)
    with ExitStack() as hooks:
        for name, module in _places(model).items():
            hooks.callback(module.register_forward_hook(_keep(states, name)).remove)
        logits_TV = feed.feed(prompt, all_logits=True)
    rows_V, chosen = [logits_TV[-1]], [int(logits_TV[-1].argmax())]
    while len(chosen) < tokens:
        rows_V.append(feed.feed([(told or chosen)[len(chosen) - 1]])[-1])
        chosen.append(int(rows_V[-1].argmax()))
    return Trace(states, logits_TV.cpu(), torch.stack(rows_V).cpu(), tuple(chosen))


def _places(model: Any) -> dict[str, nn.Module]:
    body = model.base_model
    blocks = {f"block {number}": block for number, block in enumerate(body.layers)}
    return {"embedding": model.get_input_embeddings(), **blocks, "norm": body.norm}


def _keep(states: dict[str, Tensor], name: str) -> Any:
    def keep(module: nn.Module, args: Any, output: Any) -> None:
        state_BTH = output[0] if isinstance(output, tuple) else output
        states[name] = state_BTH[0].float().cpu()

    return keep
