import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fourge.core.errors import FormatError
from fourge.model.build import load_model
from fourge.model.export import export, outgoing_from_source
from fourge.model.source import open_source, open_tensors
from tests.conftest import qwen3_tokenizer_folder, tiny_model

Folder = Callable[..., Path]
TOKENS = torch.tensor([[5, 80, 33, 200, 17, 4, 99, 250]])


def made(source: Path, folder: Path, target: str) -> Path:
    out = folder / ("m.gguf" if target == "gguf" else target)
    export(outgoing_from_source(open_source(source), target), out, target)
    return out


@pytest.mark.parametrize(
    ("target", "layout"),
    [("compressed-tensors", "compressed-tensors"), ("modelopt", "modelopt"), ("gguf", "gguf"),
     ("dat", "dat"), ("dat2", "dat"), ("safetensors", "dense")],
)  # fmt: skip
def test_the_layout_is_recognised(
    tiny_folder: Folder, tmp_path: Path, target: str, layout: str
) -> None:
    out = made(tiny_folder("llama"), tmp_path, target)
    assert open_source(out).layout == layout
    assert open_tensors(out)[0] == layout
    if target.startswith("dat"):
        assert open_source(out / "model.dat").layout == layout


def test_a_file_without_config_or_tokenizer_can_still_be_listed(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    out = made(tiny_folder("llama"), tmp_path, "compressed-tensors")
    layout, tensors = open_tensors(out / "model.safetensors")
    assert layout == "compressed-tensors"
    assert tensors["model.layers.0.mlp.up_proj.weight"].kind == "nvfp4"


def test_the_originals_tied_config_gives_way_to_a_quantised_head(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    """Its config says tied, its .dat has a head of its own in NVFP4: the file is right."""
    source = open_source(tiny_folder("qwen3", tied=True))
    outgoing = outgoing_from_source(source, "dat", keep=["embed_tokens"])
    export(outgoing, tmp_path / "out", "dat")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    (tmp_path / "out" / "config.json").write_text(
        json.dumps(config | {"tie_word_embeddings": True})
    )
    model = load_model(open_source(tmp_path / "out"))
    assert model.lm_head.weight is not model.model.embed_tokens.weight
    assert type(model.lm_head).__name__ == "Nvfp4Linear"


def test_nothing_there_says_what_could_be_given(tmp_path: Path) -> None:
    with pytest.raises(FormatError) as caught:
        open_source(tmp_path / "nowhere")
    assert "smollm2-135m" in caught.value.fix
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(FormatError, match="not a model"):
        open_source(tmp_path / "notes.txt")


def test_a_hub_id_without_a_network_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(FormatError, match="could not be fetched"):
        open_source("nobody/no-such-model")


def test_a_folder_without_config_or_tokenizer_is_refused(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    for missing in ("config.json", "tokenizer.json"):
        folder = tmp_path / missing
        shutil.copytree(tiny_folder("qwen3"), folder)
        (folder / missing).unlink()
        with pytest.raises(FormatError, match=missing.split(".")[0]):
            open_source(folder)


@pytest.mark.parametrize("change", [{"model_type": "no-such"}, {"hidden_size": "wide"}])
def test_a_config_that_transformers_does_not_know_is_refused(
    tiny_folder: Folder, tmp_path: Path, change: dict[str, str]
) -> None:
    folder = tmp_path / "m"
    shutil.copytree(tiny_folder("qwen3"), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(FormatError, match="config"):
        open_source(folder)


def test_opening_reads_no_weight(tiny_folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    original = open_source.__globals__["read_folder"].__globals__["read_safetensors"]
    from fourge.core.files import ReadFile

    read_at = ReadFile.read_at

    def counting(self: ReadFile, start: int, nbytes: int) -> object:
        reads.append(nbytes)
        return read_at(self, start, nbytes)

    monkeypatch.setattr(ReadFile, "read_at", counting)
    open_source(tiny_folder("qwen3"))
    assert original
    assert len(reads) == 2  # the header's length and the header


def test_a_gguf_is_read_once_by_transformers_and_again_when_it_changed(
    tiny_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoConfig, AutoTokenizer

    read: list[str] = []
    for kind in (AutoConfig, AutoTokenizer):
        original = kind.from_pretrained

        def counting(
            *args: object, original: Callable[..., object] = original, **more: object
        ) -> object:
            read.append(original.__qualname__)
            return original(*args, **more)

        monkeypatch.setattr(kind, "from_pretrained", counting)
    path = made(tiny_folder("qwen3"), tmp_path, "gguf")
    read.clear()
    first, second = open_source(path), open_source(path)
    tokenizers = first.tokenizer(), second.tokenizer()
    assert len(read) == 2
    first.config.vocab_size = 1  # nobody's changes are another's
    tokenizers[0].chat_template = "none"
    assert open_source(path).config.vocab_size == second.config.vocab_size != 1
    assert open_source(path).tokenizer().chat_template == tokenizers[1].chat_template != "none"
    path.unlink()
    made(tiny_folder("qwen3", tied=True), tmp_path, "gguf")
    open_source(path).tokenizer()
    assert len(read) == 4


@pytest.mark.model
@pytest.mark.slow
def test_qwen3s_tokenizer_survives_a_gguf(tmp_path: Path) -> None:
    """The real tokenizer, 151,669 tokens: written to a GGUF, read back by transformers."""
    from transformers import AutoTokenizer

    folder = tmp_path / "m"
    model = tiny_model("qwen3", tied=True)
    model.resize_token_embeddings(151936, mean_resizing=False)
    model.config.eos_token_id, model.config.bos_token_id = 151645, 151643
    model.save_pretrained(folder)
    for path in qwen3_tokenizer_folder().iterdir():
        shutil.copy(path, folder / path.name)
    out = made(folder, tmp_path, "gguf")
    original = AutoTokenizer.from_pretrained(folder)
    again = open_source(out).tokenizer()
    for text in (
        "你上個問句是什麼?(這樣的問句也算)",
        "It's 1234 m/s, isn't it?\n\n  def f(x):\n    pass",
        "<|im_start|>user\nhi<|im_end|>\n",
        "Grüße, naïve café",
    ):
        assert again.encode(text) == original.encode(text)
