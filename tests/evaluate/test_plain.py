from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fourge.core.errors import FormatError
from fourge.evaluate.check import ask, choose
from fourge.evaluate.plain import load_plain, load_plain_tokenizer
from fourge.model.export import export, outgoing_from_source
from fourge.model.source import open_source
from fourge.model.swap import nvfp4_layers

Folder = Callable[..., Path]


@pytest.fixture
def exported(tiny_folder: Folder, tmp_path: Path) -> Path:
    source, kind = open_source(tiny_folder("llama", tied=True)), "compressed-tensors"
    export(outgoing_from_source(source, kind), tmp_path / "export", kind)
    return tmp_path / "export"


def test_nothing_of_ours_is_in_a_plain_model(exported: Path) -> None:
    model = load_plain(exported, device="cpu")
    assert not nvfp4_layers(model)
    assert not any(type(module).__module__.startswith("fourge") for module in model.modules())
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert not model.training
    assert load_plain_tokenizer(exported).chat_template


def test_an_export_answers_the_same_in_plain_transformers(
    exported: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("fourge.evaluate.check.cache_folder", lambda: tmp_path / "cache")
    questions = choose(["en"], name="Ada", limit=2)
    ours = ask(str(exported), questions, lambda *told: None)
    theirs = ask(str(exported), questions, lambda *told: None, "transformers")
    assert theirs.said == ours.said
    assert theirs.losses == pytest.approx(ours.losses, abs=1e-4)
    assert len(list((tmp_path / "cache").iterdir())) == 2  # one does not answer for the other


def test_what_transformers_cannot_load_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"no config\.json"):
        load_plain(tmp_path)
