"""Sessions with tiny models whose every token has a text, in the manner of well-known families."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from fourge.chat.conversation import Template
from fourge.chat.sampling import Chooser
from fourge.chat.session import Session
from tests.conftest import TINY, byte_tokenizer
from tests.data.templates import gemma3, llama3, mistral

# Thoughts of earlier answers are dropped; the last one's are written.
QWEN3 = (
    "{% set last = namespace(user=0) %}{% for m in messages %}{% if m['role'] == 'user' %}"
    "{% set last.user = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}"
    "<|im_start|>{{ m['role'] }}\n{% if m['role'] == 'assistant' and loop.index0 < last.user %}"
    "{{ m['content'].split('</think>')[-1].lstrip('\n') }}{% else %}{{ m['content'] }}{% endif %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# A conversation without a system text is given one.
SMOLLM2 = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou help.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def chatml(template: str) -> Any:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    return tokenizer


TOKENIZERS = {
    "qwen3": lambda: chatml(QWEN3),
    "smollm2": lambda: chatml(SMOLLM2),
    "llama3": llama3,
    "gemma3": gemma3,
    "mistral": mistral,
}
FAMILIES = {
    "qwen3": "qwen3",
    "smollm2": "llama",
    "llama3": "llama",
    "gemma3": "gemma3_text",
    "mistral": "mistral",
}


def model_for(tokenizer: Any, family: str = "qwen3", **config: Any) -> Any:
    """A random model that can say every token of the tokenizer, and no other."""
    named = {
        name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")
    }
    settings = {**TINY, **named, "vocab_size": len(tokenizer), "tie_word_embeddings": False}
    torch.manual_seed(3)
    made = AutoConfig.for_model(family, **{**settings, **config})
    model = AutoModelForCausalLM.from_config(made, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.copy_(0.15 * torch.randn(parameter.shape))
    return model.eval()


def session_of(
    name: str = "smollm2", *, config: dict[str, Any] | None = None, **kwargs: Any
) -> Session:
    tokenizer = TOKENIZERS[name]()
    model = model_for(tokenizer, FAMILIES[name], **(config or {}))
    return Session(model, Template(tokenizer), **kwargs)


def whole(model: Any, ids: Sequence[int]) -> Tensor:
    """The logits of one full forward pass [T, V]."""
    with torch.no_grad():
        logits: Tensor = model(torch.tensor([list(ids)]), use_cache=False).logits[0]
    return logits


def says(monkeypatch: pytest.MonkeyPatch, *replies: Sequence[int]) -> None:
    """Have models choose these tokens, reply after reply, whatever their logits are."""
    tokens = iter([token for reply in replies for token in reply])
    monkeypatch.setattr(Chooser, "choose", lambda self, logits, context: next(tokens))


def bytes_of(session: Session, text: str, *, stop: bool = True) -> list[int]:
    """A text as a model may say it and no tokenizer would: byte by byte, "th" not merged."""
    encode = session.template.renderer.encode
    ids = [token for letter in text for token in encode(letter)]
    return [*ids, min(session.stop_ids)] if stop else ids
