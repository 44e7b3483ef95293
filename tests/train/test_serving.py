from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fourge.evaluate.answers import answer_all
from fourge.evaluate.perplexity import Piece, losses
from fourge.harness.training import Stop, prepared, trained
from fourge.model.mixed import compute_in_
from fourge.nvfp4 import compiled, gemm
from fourge.nvfp4.gemm import drop_scratch, scratch
from fourge.train.loop import StepResult
from fourge.train.serving import serving
from tests.conftest import byte_tokenizer, tiny_model
from tests.harness.samples import held, run_of, same_end

Folder = Callable[..., Path]
ASKED = [[{"role": "user", "content": "who?"}], [{"role": "user", "content": "where is it?"}]]


@pytest.fixture(autouse=True)
def _plain_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_can_compile", lambda device: False)


def trained_with_looks(run: Any, *, looks: bool) -> list[float]:
    """The losses of a run in which the model is asked before and after every step, or not."""
    drop_scratch()
    ready, begin = prepared(run)
    found = []
    for event in trained(ready, begin, Stop()):
        if isinstance(event, StepResult):
            found.append(event.loss)
        if looks:
            with serving(ready.model):
                losses(ready.model, byte_tokenizer(), [Piece("a text to be predicted")])
                answer_all(ready.model, byte_tokenizer(), ASKED, max_tokens=5)
    return found


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"train": {"recompute": "light", "accumulate": 2, "release": False}},
        {"optim": {"master": "nvfp4"}},
        {"model": {"compute_dtype": "bfloat16"}},
    ],
    ids=["release", "sum", "packed", "bf16"],
)
def test_no_bit_of_a_training_differs_with_looks_in_between(
    settings: dict[str, Any], tiny_folder: Folder, tmp_path: Path
) -> None:
    base = tiny_folder("qwen3", tied=True)
    runs = []
    for name in ("blind", "seeing"):
        sections = held(tmp_path / name)
        sections["train"] |= {"steps": 3, **settings.get("train", {})}
        more = {part: settings.get(part, {}) for part in ("optim", "model")}
        runs.append(run_of(tmp_path / name, base, **sections, **more))
    blind = trained_with_looks(runs[0], looks=False)
    assert trained_with_looks(runs[1], looks=True) == blind
    assert same_end(*runs)


def test_modes_and_the_cache_setting_come_back_even_after_an_error() -> None:
    model = tiny_model("qwen3")
    model.train()
    model.model.norm.eval()
    model.config.use_cache = False
    before = [module.training for module in model.modules()]

    def fails() -> None:
        with serving(model):
            assert not any(module.training for module in model.modules())
            assert model.config.use_cache
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        fails()
    assert [module.training for module in model.modules()] == before
    assert model.config.use_cache is False


def test_a_model_that_trains_in_bf16_answers_in_what_a_loaded_one_does() -> None:
    model = tiny_model("qwen3", dtype=torch.bfloat16)
    compute_in_(model, torch.bfloat16)
    token = torch.tensor([[1, 2, 3]])
    before = model(token).logits
    drop_scratch()
    with serving(model):
        assert model(token).logits.dtype == torch.float32
        scratch((2, 2), torch.float32, model.device)
    assert torch.equal(model(token).logits, before)
    assert not gemm._buffers.of
