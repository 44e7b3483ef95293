"""Batches, labels as transformers wants them, and tiny models put into their training form."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fourge.data.batch import MASKED, Batch
from fourge.nvfp4.matrix import dequantize
from fourge.nvfp4.packed import PackedWeight
from fourge.optim.adamw import AdamW
from fourge.train.loss import Teacher
from fourge.train.prepare import prepare_, storage_dtype
from tests.conftest import TINY, tiny_model

FAMILIES = [("qwen3", True), ("llama", False), ("gemma3_text", True)]
PAD = TINY["pad_token_id"]
WORDS = 256  # tokens below are bytes, none of them special


def batch_of(lengths: Sequence[int], *, seed: int = 0, width: int = 0, share: float = 0.5) -> Batch:
    """Random rows of these lengths, padded to the right; about ``share`` of them is learned."""
    shape = (len(lengths), max(*lengths, width))
    token_BT = torch.full(shape, PAD)
    target_BT = torch.full(shape, MASKED)
    for row, length in enumerate(lengths):
        own = torch.Generator().manual_seed(1000 * seed + row)  # whatever stands beside it
        token_BT[row, :length] = torch.randint(WORDS, (length,), generator=own)
        learned = torch.rand(length - 1, generator=own) < share
        learned[-1] = True
        follows = token_BT[row, 1:length]
        target_BT[row, : length - 1] = torch.where(learned, follows, torch.tensor(MASKED))
    mask_BT = torch.arange(shape[1]) < torch.tensor(lengths).unsqueeze(1)
    rows = tuple((0, row) for row in range(len(lengths)))
    return Batch(token_BT, target_BT, mask_BT, tuple(f"a.tsv:{r + 1}" for _, r in rows), rows)


def labels_of(batch: Batch) -> Tensor:
    """The targets where transformers expects them: it shifts by itself."""
    label_BT = torch.full_like(batch.target_BT, MASKED)
    label_BT[:, 1:] = batch.target_BT[:, :-1]
    return label_BT


def their_loss(model: Any, batch: Batch) -> Tensor:
    """What transformers computes, from full logits."""
    mask = batch.mask_BT.long()
    loss: Tensor = model(batch.token_BT, attention_mask=mask, labels=labels_of(batch)).loss
    return loss


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def prepared(
    family: str = "qwen3", *, tied: bool = True, **settings: Any
) -> tuple[Any, list[tuple[str, Tensor]]]:
    master = settings.setdefault("master", "bf16")
    model = tiny_model(family, tied=tied, dtype=storage_dtype(master))
    return model, prepare_(model, **settings)


def optimizer_of(named: list[tuple[str, Tensor]], **settings: Any) -> AdamW:
    return AdamW(named, **{"lr": 1e-3, "clip": 1.0, **settings})


def values(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter as it is, decoded where it is packed."""
    return {
        name: dequantize(p.matrix) if isinstance(p, PackedWeight) else p.detach().clone()
        for name, p in model.named_parameters()
    }


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


def states(positions: int = 33, hidden: int = 16, vocab: int = 90) -> tuple[Tensor, nn.Linear]:
    torch.manual_seed(3)
    head = nn.Linear(hidden, vocab, bias=False)
    return torch.randn(positions, hidden, requires_grad=True), head


def targets(positions: int = 33, vocab: int = 90) -> Tensor:
    return torch.randint(vocab, (positions,), generator=torch.Generator().manual_seed(5))


def teacher_of(logit_TV: Tensor, top_k: int, has: Tensor | None = None) -> Teacher:
    log_p, token = logit_TV.float().log_softmax(-1).topk(top_k)
    return Teacher(token, log_p, torch.ones(len(token), dtype=torch.bool) if has is None else has)
