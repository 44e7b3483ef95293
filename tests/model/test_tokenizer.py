from collections.abc import Callable
from pathlib import Path

import pytest

from fourge.core.errors import FormatError
from fourge.model.source import open_source
from fourge.model.tokenizer import copy_tokenizer, folder_tokenizer, require_tokenizer
from tests.conftest import TEMPLATE, qwen3_tokenizer_folder

IDS = [56568, 17447, 99542, 98297, 99700, 20412, 102386, 14437, 110225, 98297, 99700, 114978, 8]


@pytest.mark.model
def test_qwen3s_tokenizer_is_the_real_one() -> None:
    tokenizer = folder_tokenizer(qwen3_tokenizer_folder())
    assert tokenizer.decode(IDS) == "你上個問句是什麼?(這樣的問句也算)"
    assert tokenizer.encode("你上個問句是什麼?(這樣的問句也算)") == IDS


def test_a_copied_tokenizer_is_the_same(tiny_folder: Callable[..., Path], tmp_path: Path) -> None:
    copy_tokenizer(tiny_folder("qwen3"), tmp_path)
    tokenizer = folder_tokenizer(tmp_path)
    assert tokenizer.chat_template == TEMPLATE
    assert tokenizer.encode("that") == tokenizer.encode("th") + tokenizer.encode("at")
    assert not (tmp_path / "config.json").exists()


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no tokenizer"):
        require_tokenizer(tmp_path)


@pytest.mark.model
def test_the_embedded_models_tokenizer_splits_digits_and_has_a_template(tmp_path: Path) -> None:
    source = open_source("smollm2-135m")
    tokenizer = source.tokenizer()
    assert len(tokenizer.encode("20261115")) == 8
    assert "Digits" in str(tokenizer.backend_tokenizer.pre_tokenizer)
    source.write_tokenizer(tmp_path)
    again = folder_tokenizer(tmp_path)
    assert again.chat_template == tokenizer.chat_template
    assert again.eos_token == "<|im_end|>"
    text = "Prices: 3.50, 12 and 1999. 你好"
    assert again.encode(text) == tokenizer.encode(text)
    assert (tmp_path / "generation_config.json").exists()
