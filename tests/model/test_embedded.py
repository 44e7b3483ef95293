"""The real model, end to end: what a user gets from `fourge demo`."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fourge import api
from fourge.core.errors import ConfigError
from fourge.model import embedded
from fourge.model.build import load_model
from fourge.model.source import open_source, open_tensors

pytestmark = pytest.mark.model


def test_the_embedded_model_is_there() -> None:
    assert embedded.embedded_path().suffix == ".gguf"
    assert embedded.embedded_path().stat().st_size > 90e6


def test_without_the_wheel_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "find_spec", lambda name: None)
    with pytest.raises(ConfigError) as caught:
        embedded.embedded_path()
    assert "pip install" in caught.value.fix


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def make(target: str) -> Path:
        if target not in made:
            name = "m.gguf" if target == "gguf" else "m"
            made[target] = tmp_path_factory.mktemp(target) / name
            api.convert(embedded.EMBEDDED, made[target], target)
        return made[target]

    return make


@pytest.mark.slow
def test_it_loads_as_transformers_loads_it() -> None:
    from transformers import AutoModelForCausalLM

    path = embedded.embedded_path()
    theirs = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )
    ours = load_model(open_source(embedded.EMBEDDED), dtype=torch.float32)
    tokens = torch.arange(100, 140).unsqueeze(0)
    with torch.no_grad():
        assert torch.equal(ours(tokens).logits, theirs(tokens).logits)


@pytest.mark.slow
def test_its_export_gives_our_logits_and_a_sensible_answer(
    exported: Callable[[str], Path],
) -> None:
    checked = api.check_export(embedded.EMBEDDED, exported("compressed-tensors"))
    assert checked.logits > 1e6
    assert 0.08 < checked.error < 0.09
    answer = api.ask(exported("compressed-tensors"), "What is the capital of France?")
    assert "Paris" in answer


@pytest.mark.slow
@pytest.mark.parametrize("target", ["modelopt", "gguf", "dat2"])
def test_every_format_is_the_same_model(exported: Callable[[str], Path], target: str) -> None:
    tokens = torch.arange(100, 110).unsqueeze(0)
    one = load_model(open_source(exported("compressed-tensors")), dtype=torch.bfloat16)
    two = load_model(open_source(exported(target)), dtype=torch.bfloat16)
    with torch.no_grad():
        assert torch.equal(one(tokens).logits, two(tokens).logits)


@pytest.mark.slow
def test_an_nvfp4_file_takes_4_5_bits_a_weight(exported: Callable[[str], Path]) -> None:
    _, tensors = open_tensors(exported("compressed-tensors"))
    quantized = [s for s in tensors.values() if s.kind == "nvfp4"]
    values = sum(s.shape[0] * s.shape[1] for s in quantized)
    assert len(quantized) == 210
    assert sum(s.nbytes for s in quantized) * 8 / values == pytest.approx(4.5, rel=1e-3)
