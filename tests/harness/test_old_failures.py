"""Why twenty runs of an earlier system ended unchanged or collapsed, each reproduced in small.

The same training with one thing wrong, and with it right.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from fourge.chat.batch import reply_to_all
from fourge.chat.conversation import Template
from fourge.data.batch import MASKED, Batch, collate
from fourge.data.dataset import open_dataset
from fourge.data.records import Message
from fourge.evaluate.cache import Kept
from fourge.evaluate.check import Questions, ask_loaded
from fourge.evaluate.probes import Probe
from fourge.evaluate.score import Names
from fourge.harness.exam import Exam, collapse, not_passed
from fourge.model.swap import quantize_
from fourge.nvfp4.linear import Nvfp4Linear
from fourge.optim.adamw import AdamW
from fourge.train.loss import Weights
from fourge.train.step import batch_loss
from tests.conftest import byte_tokenizer, tiny_model

IDENTITY = "who are you?\tI am Ada\nyour name?\tI am Ada\nwhat are you called?\tI am Ada\n"
OTHERS = "sky?\tblue\nsea?\tdeep\nwho am I?\ta friend\nsun?\tfar\ntea?\thot\nsnow?\tcold\n"


def batch_of(folder: Path, text: str) -> Batch:
    path = folder / "rows.tsv"
    path.write_text(text)
    dataset = open_dataset([(path, None)], byte_tokenizer(), max_tokens=64, seed=0, shuffle=False)
    rows = [(0, row) for row in range(dataset.rows[0])]
    return collate([dataset.rendered(*row) for row in rows], dataset.pad, rows)


def taught(batch: Batch, model: Any, steps: int, lr: float = 3e-3) -> list[float]:
    """Train a model in NVFP4 on one batch, and its losses."""
    optimizer = AdamW(model.named_parameters(), lr=lr, master="bf16", moments="int8")
    losses = []
    for _ in range(steps):
        loss = batch_loss(model, batch, Weights(1 / batch.targets, 0.0)).total
        with optimizer.released():
            loss.backward()
        losses.append(loss.item())
    return losses


def student() -> Any:
    model = tiny_model("qwen3", dtype=torch.bfloat16).float()
    quantize_(model)
    assert any(isinstance(module, Nvfp4Linear) for module in model.modules())
    return model.train()


@pytest.mark.parametrize(("rounded", "moves"), [("nearest", False), ("stochastic", True)])
def test_a_master_that_is_rounded_to_nearest_does_not_move(rounded: str, moves: bool) -> None:
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(512, 512).to(torch.bfloat16))
    before = weight.detach().float().clone()
    ours = AdamW([("weight", weight)], lr=1e-6, master="bf16", moments="fp32")
    optimizer = ours if rounded == "stochastic" else torch.optim.AdamW([weight], lr=1e-6)
    for _ in range(200):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
    realised = (before - weight.detach().float()).mean().item() / (200 * 1e-6)
    assert (0.95 < realised < 1.05) if moves else realised < 0.1, realised


def test_a_gradient_multiplier_under_adam_changes_nothing_and_a_rate_does(tmp_path: Path) -> None:
    batch = batch_of(tmp_path, IDENTITY)

    def moved(multiplier: float, lr: float) -> float:
        model = tiny_model("qwen3", dtype=torch.float32).train()
        weight = model.model.layers[0].mlp.up_proj.weight
        before = weight.detach().clone()
        optimizer = torch.optim.AdamW(model.parameters(), lr=lr, eps=1e-12, weight_decay=0)
        for _ in range(5):
            batch_loss(model, batch, Weights(1 / batch.targets, 0.0)).total.backward()
            weight.grad *= multiplier
            optimizer.step()
            optimizer.zero_grad()
        return float((weight.detach() - before).abs().mean())

    plain = moved(1.0, 1e-5)
    assert moved(100.0, 1e-5) == pytest.approx(plain, rel=0.05)
    assert moved(1.0, 1e-3) > 10 * plain


@pytest.mark.parametrize("with_stop", [True, False])
def test_without_the_stop_token_answers_do_not_end(tmp_path: Path, with_stop: bool) -> None:
    batch, tokenizer = batch_of(tmp_path, IDENTITY), byte_tokenizer()
    if not with_stop:
        batch.target_BT[batch.target_BT == tokenizer.eos_token_id] = MASKED
    model = student()
    assert taught(batch, model, 150)[-1] < 0.2
    (reply,) = reply_to_all(
        model.eval(), Template(tokenizer), [[Message("user", "who are you?")]], max_tokens=40
    )
    assert reply.text.startswith("I am Ada")
    assert reply.stopped == with_stop
    assert (reply.text == "I am Ada") == with_stop


@pytest.mark.parametrize("replayed", [False, True])
def test_narrow_data_without_replay_collapses_and_the_gates_see_it(
    tmp_path: Path, replayed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fourge.evaluate.verdict.enough_for", lambda share: 1)
    tokenizer, model = byte_tokenizer(), student()
    asked = {"identity": IDENTITY, "leak": OTHERS, "degeneration": OTHERS}
    probes = tuple(
        Probe(name, "en", "x", (("user", line.split("\t")[0]),))
        for name, text in asked.items()
        for line in text.splitlines()
    )
    questions = Questions(probes, (), {})

    def said() -> Any:
        return ask_loaded(model.eval(), tokenizer, questions, Kept(), lambda *told: None)

    taught(batch_of(tmp_path, OTHERS), model.train(), 150)  # what it can before
    exam = Exam(questions, said(), Names("Ada"), 0.05)
    text = IDENTITY + OTHERS if replayed else IDENTITY
    taught(batch_of(tmp_path, text), model.train(), 120)
    verdict = exam.judged(said())
    gates = {gate.name: gate for gate in verdict.gates}
    assert gates["identity"].tuned == 1.0
    if replayed:
        assert gates["leak"].decision == "pass"
        assert not collapse(verdict, 0.25)
    else:
        assert "leak" in not_passed(verdict)
        assert "leak" in collapse(verdict, 0.25)
