"""The optimizer and NVFP4 layers under other people's training loops."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fourge
from fourge.model.swap import nvfp4_layers
from fourge.nvfp4.matrix import dequantize
from fourge.optim.adamw import AdamW
from fourge.optim.masters import MasterFormat
from tests.conftest import byte_tokenizer, tiny_model

STEPS = 8


@pytest.fixture(autouse=True)
def plain_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling takes longer than these runs, and changes no bit (``test_kernel.py``)."""
    monkeypatch.setattr("fourge.nvfp4.compiled._can_compile", lambda device: False)


def model_of(dtype: torch.dtype) -> Any:
    model = tiny_model("qwen3", tied=True, dtype=dtype)
    fourge.quantize_(model)
    return model.train()


def rows() -> list[dict[str, list[int]]]:
    text = byte_tokenizer()("the three brothers there thought that this is the thing")["input_ids"]
    return [{"input_ids": text, "labels": text} for _ in range(4 * STEPS)]


def arguments(folder: Path, **changes: Any) -> dict[str, Any]:
    settings = {
        "output_dir": str(folder), "max_steps": STEPS, "per_device_train_batch_size": 2,
        "logging_steps": 1, "report_to": "none", "use_cpu": True, "save_strategy": "no",
        "disable_tqdm": True, "seed": 1, "bf16": False, "gradient_checkpointing": False,
        "dataloader_pin_memory": False,
    }  # fmt: skip
    return {**settings, **changes}


def optimizer_of(model: Any, master: MasterFormat) -> AdamW:
    return AdamW(model.named_parameters(), lr=2e-3, master=master, moments="int8")


def trained(
    folder: Path,
    master: MasterFormat = "bf16",
    *,
    resume: str | None = None,
    schedule: bool = False,
    **changes: Any,
) -> tuple[Any, Any]:
    from transformers import Trainer, TrainingArguments

    model = model_of(torch.float32 if master == "fp32" else torch.bfloat16)
    optimizer = optimizer_of(model, master)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, STEPS) if schedule else None
    trainer = Trainer(
        model=model, args=TrainingArguments(**arguments(folder, **changes)), train_dataset=rows(),
        optimizers=(optimizer, scheduler),
    )  # fmt: skip
    trainer.train(resume_from_checkpoint=resume)
    return model, trainer


def losses(trainer: Any) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def weights(model: Any) -> dict[str, Tensor]:
    return {name: param.detach().clone() for name, param in model.named_parameters()}


@pytest.mark.parametrize("master", ["bf16", "bf16+8", "fp32"])
def test_transformers_trainer_trains_every_weight(tmp_path: Path, master: MasterFormat) -> None:
    before = weights(model_of(torch.float32 if master == "fp32" else torch.bfloat16))
    model, trainer = trained(tmp_path, master)
    seen = losses(trainer)
    assert len(seen) == STEPS
    assert seen[-1] < 0.8 * seen[0]
    for name, now in weights(model).items():
        assert now.dtype == before[name].dtype
        assert not torch.equal(now, before[name]), name


def test_the_forward_pass_uses_the_codes_of_the_weights_as_they_are(tmp_path: Path) -> None:
    model, _ = trained(tmp_path)
    for layer in nvfp4_layers(model).values():
        x = torch.randn(3, layer.in_features).bfloat16()
        dense = dequantize(layer.codes(), dtype=torch.bfloat16)
        torch.testing.assert_close(layer(x), x @ dense.T)
        error = (dense.float() - layer.weight.float()).norm() / layer.weight.float().norm()
        assert 0.01 < error < 0.15


def test_its_schedule_reaches_the_optimizer(tmp_path: Path) -> None:
    _, trainer = trained(tmp_path, schedule=True)
    rates = [entry["learning_rate"] for entry in trainer.state.log_history if "loss" in entry]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 0.3 * rates[0]


def test_its_clipping_and_accumulation_are_respected(tmp_path: Path) -> None:
    """It scales the gradients before the optimizer sees them, whose norm is then the limit."""
    _, trainer = trained(tmp_path, "fp32", max_grad_norm=0.01, gradient_accumulation_steps=2)
    optimizer = trainer.optimizer
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    assert isinstance(optimizer, AdamW)
    assert optimizer.grad_norm == pytest.approx(0.01, rel=1e-3)
    assert all(state["step"] == STEPS for state in optimizer.state.values())


@pytest.mark.parametrize("master", ["bf16", "bf16+8"])
def test_a_checkpoint_of_trainer_continues_bit_for_bit(
    tmp_path: Path, master: MasterFormat
) -> None:
    settings: dict[str, Any] = {"save_strategy": "steps", "save_steps": STEPS // 2}
    whole, one = trained(tmp_path / "whole", master, **settings)
    saved = tmp_path / "whole" / f"checkpoint-{STEPS // 2}"
    resumed, two = trained(tmp_path / "resumed", master, resume=str(saved), **settings)
    assert losses(one) == losses(two)
    expected = weights(whole)
    assert all(torch.equal(now, expected[name]) for name, now in weights(resumed).items())


def test_trl_s_sft_trainer_trains_a_model_from_a_folder(
    tmp_path: Path, tiny_folder: Callable[..., Path]
) -> None:
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import SFTConfig, SFTTrainer

    folder = tiny_folder("qwen3", tied=True)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    fourge.quantize_(model)
    before = weights(model)
    chat = [{"role": "user", "content": "the?"}, {"role": "assistant", "content": "that there"}]
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(**arguments(tmp_path), max_length=64),
        train_dataset=Dataset.from_list([{"messages": chat}] * 16),
        processing_class=AutoTokenizer.from_pretrained(folder),
        optimizers=(optimizer_of(model, "bf16"), None),
    )
    trainer.train()
    seen = losses(trainer)
    assert seen[-1] < 0.8 * seen[0]
    assert all(not torch.equal(now, before[name]) for name, now in weights(model).items())
