import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fourge.core.errors import FormatError
from fourge.model.gguf_metadata import gguf_architecture, metadata_of
from tests.conftest import TEMPLATE, byte_tokenizer, qwen3_tokenizer_folder, tiny_config

Folder = Callable[..., Path]


def test_a_config_becomes_metadata(tiny_folder: Folder) -> None:
    config = tiny_config("qwen3", tied=False)
    metadata = metadata_of(config, tiny_folder("qwen3"), "tiny")
    assert metadata["qwen3.block_count"] == 2
    assert metadata["qwen3.attention.key_length"] == 16
    assert metadata["qwen3.rope.freq_base"] == config.rope_parameters["rope_theta"]
    assert metadata["tokenizer.ggml.eos_token_id"] == 259
    assert metadata["tokenizer.chat_template"] == TEMPLATE
    assert metadata["tokenizer.ggml.merges"] == ["t h"]
    assert metadata["tokenizer.ggml.token_type"][258] == 3
    assert metadata["tokenizer.ggml.tokens"][299] == "[PAD299]"


def test_mistral_is_a_llama_to_gguf() -> None:
    assert gguf_architecture(tiny_config("mistral", tied=False)) == "llama"


def test_a_scaled_rotary_embedding_is_refused() -> None:
    config = tiny_config("llama", tied=False)
    config.rope_parameters = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
    with pytest.raises(FormatError, match="linear"):
        gguf_architecture(config)


def changed(folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    byte_tokenizer().save_pretrained(folder)
    content = json.loads((folder / "tokenizer.json").read_text())
    change(content)
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return folder


def test_a_tokenizer_that_llama_cpp_would_misread_is_refused(tmp_path: Path) -> None:
    config = tiny_config("llama", tied=False)
    unknown = changed(tmp_path, lambda c: c.update(pre_tokenizer={"type": "Whitespace"}))
    with pytest.raises(FormatError, match="splitting text"):
        metadata_of(config, unknown, "tiny")
    wrong = changed(tmp_path, lambda c: c["model"].update(type="Unigram"))
    with pytest.raises(FormatError, match="Unigram"):
        metadata_of(config, wrong, "tiny")


def test_a_tokenizer_larger_than_the_model_is_refused(tmp_path: Path) -> None:
    config = tiny_config("llama", tied=False)
    config.vocab_size = 100
    byte_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(FormatError, match="the model has 100"):
        metadata_of(config, tmp_path, "tiny")


@pytest.mark.model
def test_qwens_way_of_splitting_is_known_by_name() -> None:
    config = tiny_config("qwen3", tied=False)
    config.vocab_size = 151936
    metadata = metadata_of(config, qwen3_tokenizer_folder(), "tiny")
    assert metadata["tokenizer.ggml.pre"] == "qwen2"
    assert metadata["tokenizer.ggml.tokens"][151645] == "<|im_end|>"
