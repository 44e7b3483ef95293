"""A source's tokenizer, as transformers' object and as files.

From a GGUF it is rebuilt by transformers, which drops how SmolLM splits digits; what llama.cpp
calls the pre-tokenizer says so, and it is put back.
"""

import shutil
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

from fourge.core.errors import FormatError, first_line
from fourge.core.files import Stamp, stamp_of

TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja", "chat_template.json",
    "generation_config.json",
)  # fmt: skip


def folder_tokenizer(folder: Path) -> Any:
    """The tokenizer of a transformers folder."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # transformers raises whatever its parsing met
        raise FormatError(f"{folder} has no usable tokenizer.", why=first_line(error)) from error


def gguf_tokenizer(path: Path, pre_tokenizer: str) -> Any:
    """The tokenizer inside a GGUF."""
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    try:
        tokenizer = deepcopy(_transformers_tokenizer(path, stamp_of(path)))
    except Exception as error:  # transformers raises whatever its parsing met
        raise FormatError(f"{path} has no usable tokenizer.", why=first_line(error)) from error
    if pre_tokenizer == "smollm":
        tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
            [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
        )
    return tokenizer


@lru_cache(maxsize=4)  # it takes seconds
def _transformers_tokenizer(path: Path, stamp: Stamp) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)


def copy_tokenizer(source: Path, target: Path) -> None:
    """Tokenizer, chat template and generation config of one folder, into another."""
    for name in TOKENIZER_FILES:
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)


def write_gguf_tokenizer(path: Path, pre_tokenizer: str, target: Path) -> None:
    """The same from inside a GGUF."""
    from transformers import GenerationConfig

    tokenizer = gguf_tokenizer(path, pre_tokenizer)
    tokenizer.save_pretrained(target)
    GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    ).save_pretrained(target)


def require_tokenizer(folder: Path) -> None:
    """Raise for a folder without one."""
    if not any((folder / n).exists() for n in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        raise FormatError(
            f"{folder} has no tokenizer.",
            why="neither tokenizer.json, tokenizer.model nor vocab.json is there",
            fix="copy the tokenizer files of the model into the folder",
        )
