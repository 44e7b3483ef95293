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
    config = tiny_config("mistral", tied=False)
    config.sliding_window = None
    assert gguf_architecture(config) == "llama"


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
    for steps in (
        [{"type": "Whitespace"}],
        [{"type": "Split", "pattern": {"Regex": r"[a-z]+|\p{N}|."}}, {"type": "ByteLevel"}],
        [{"type": "Split", "pattern": {"Regex": r"\p{N}{1,3}|."}},
         {"type": "ByteLevel", "use_regex": False}],
    ):  # fmt: skip
        pre = {"type": "Sequence", "pretokenizers": steps}
        unknown = changed(tmp_path, lambda c, pre=pre: c.update(pre_tokenizer=pre))  # type: ignore[misc]
        with pytest.raises(FormatError, match="splitting text"):
            metadata_of(config, unknown, "tiny")
    wrong = changed(tmp_path, lambda c: c["model"].update(type="Unigram"))
    with pytest.raises(FormatError, match="Unigram"):
        metadata_of(config, wrong, "tiny")


def test_a_tokenizer_that_puts_bos_first_says_so(tmp_path: Path) -> None:
    config = tiny_config("llama", tied=False)
    template = {"type": "TemplateProcessing", "single": [
        {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}]}  # fmt: skip
    for post, adds in ((template, True), (None, False)):
        folder = changed(tmp_path, lambda c, post=post: c.update(post_processor=post))  # type: ignore[misc]
        assert metadata_of(config, folder, "tiny")["tokenizer.ggml.add_bos_token"] is adds


def test_a_list_of_stop_tokens_gives_its_first(tmp_path: Path) -> None:
    config = tiny_config("llama", tied=False)
    config.eos_token_id = [259, 257]
    byte_tokenizer().save_pretrained(tmp_path)
    assert metadata_of(config, tmp_path, "tiny")["tokenizer.ggml.eos_token_id"] == 259


def test_a_sliding_window_is_refused() -> None:
    config = tiny_config("mistral", tied=False)
    config.sliding_window = 16
    with pytest.raises(FormatError, match="sliding window"):
        gguf_architecture(config)


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
