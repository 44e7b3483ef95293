"""KL replay: what is kept of the base model's distribution, and what is lost by keeping less.

The base is the embedded model; the model that is held to it is the same one in NVFP4: a
divergence that is real, and small.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fourge.data.batch import MASKED
from fourge.model.build import load_model
from fourge.model.embedded import EMBEDDED
from fourge.model.source import open_source
from fourge.model.swap import quantize_
from fourge.train.loss import Teacher, Weights, head_loss
from tests.docs.pictures import paper

TEXT = (
    "The capital of France is Paris, and the capital of Italy is Rome. Water boils at a hundred "
    "degrees Celsius, and it freezes at zero. A week has seven days, and the first day of it is"
)
KEPT = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
DEFAULT = 32
SHOWN = 8


class Pair(NamedTuple):
    """Both models at every position of the text."""

    base_TV: Tensor  # log-probabilities
    hidden_TH: Tensor  # of the other model, after its final norm
    head: nn.Module  # which makes logits of them
    tokenizer: Any

    def tuned(self) -> Tensor:
        """The other model's log-probabilities."""
        logit_TV: Tensor = self.head(self.hidden_TH)
        return logit_TV.log_softmax(-1)


@torch.no_grad()
def pair() -> Pair:
    source = open_source(EMBEDDED)
    model, tokenizer = load_model(source), source.tokenizer()
    tokens_BT = tokenizer(TEXT, return_tensors="pt")["input_ids"]
    base_TV = model(tokens_BT).logits[0].log_softmax(-1)
    quantize_(model)
    hidden_TH = model.base_model(tokens_BT).last_hidden_state[0]
    head = model.get_output_embeddings().requires_grad_(False)
    return Pair(base_TV, hidden_TH, head, tokenizer)


def kept_divergence(both: Pair, top_k: int) -> float:
    """Nats per position, as training measures it: the base's top k tokens, and one bucket."""
    log_p_TK, token_TK = both.base_TV.topk(top_k)
    count = len(both.base_TV)
    teacher = Teacher(token_TK, log_p_TK, torch.ones(count, dtype=torch.bool))
    target_T = torch.full((count,), MASKED)
    loss = head_loss(both.hidden_TH, both.head, target_T, Weights(0.0, 1.0), teacher=teacher)
    return float(loss.teacher_sum) / count


@torch.no_grad()
def whole_divergence(both: Pair) -> float:
    """The same over the whole vocabulary, by torch."""
    return float(
        nn.functional.kl_div(both.tuned(), both.base_TV, reduction="batchmean", log_target=True)
    )


def draw(figure: Any) -> None:
    both = pair()
    tokens, kept = figure.subplots(1, 2, width_ratios=(1.2, 1))
    _draw_tokens(tokens, both)
    _draw_kept(kept, both)


@torch.no_grad()
def _draw_tokens(axes: Any, both: Pair) -> None:
    p_V, q_V = both.base_TV[-1].exp(), both.tuned()[-1].exp()
    top = p_V.topk(SHOWN).indices
    names = [both.tokenizer.decode(token).strip() for token in top]
    names.append(f"all other\n{len(p_V) - SHOWN:,}")
    for name, p, shift, colour in (("base", p_V, -0.2, paper.BLUE),
                                   ("in NVFP4", q_V, 0.2, paper.ORANGE)):  # fmt: skip
        heights = [*(p[top] * 100).tolist(), float(1 - p[top].sum()) * 100]
        places = [at + shift for at in range(len(names))]
        axes.bar(places, heights, width=0.38, color=colour, label=name)
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right")
    paper.plain(axes, '"... and the first day of it is"', "", "probability, %")
    paper.legend(axes, loc="upper center")


def _draw_kept(axes: Any, both: Pair) -> None:
    whole = whole_divergence(both)
    found = [kept_divergence(both, top_k) for top_k in KEPT]
    axes.axhline(whole, color=paper.INK, linewidth=0.8, linestyle="--",
                 label=f"all {both.base_TV.shape[1]:,} tokens: {whole:.4f} nats")  # fmt: skip
    axes.plot(KEPT, found, "o-", markersize=4, color=paper.BLUE, label="top k and a bucket")
    default = found[KEPT.index(DEFAULT)]
    axes.plot(DEFAULT, default, "o", color=paper.RED,
              label=f"k = {DEFAULT}: {default:.4f} nats, {default / whole:.0%}")  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_xticks(KEPT[::2], [f"{top_k:,}" for top_k in KEPT[::2]])
    axes.set_ylim(bottom=0)
    paper.plain(axes, "How much of the divergence is seen", "tokens kept, k", "nats per position")
    paper.legend(axes, loc="lower right")
