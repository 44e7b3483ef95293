"""Chat templates in the manner of well-known families, on a tokenizer of bytes."""

from typing import Any

from tokenizers.processors import TemplateProcessing

from tests.conftest import byte_tokenizer

LLAMA3 = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n"
    "{{ m['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
GEMMA3 = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set first = messages[0]['content'] "
    "+ '\n\n' %}{% set turns = messages[1:] %}{% else %}{% set first = '' %}"
    "{% set turns = messages %}{% endif %}{% for m in turns %}"
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate user/model') }}{% endif %}"
    "<start_of_turn>{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n"
    "{{ first if loop.first else '' }}{{ m['content'] | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'assistant' %}"
    " {{ m['content'] }}{{ eos_token }}{% else %}[INST] {{ m['content'] }} [/INST]{% endif %}"
    "{% endfor %}"
)
# The system's text goes before the last user's: history is written anew at every turn.
MISTRAL_SYSTEM_LAST = (
    "{{ bos_token }}{% set users = messages | selectattr('role', 'equalto', 'user') | list %}"
    "{% for m in messages %}{% if m['role'] == 'assistant' %} {{ m['content'] }}{{ eos_token }}"
    "{% elif m['role'] == 'user' %}[INST] "
    "{% if messages[0]['role'] == 'system' and m['content'] == users[-1]['content'] %}"
    "{{ messages[0]['content'] }} {% endif %}{{ m['content'] }} [/INST]{% endif %}{% endfor %}"
)
# Special tokens before the answer, and the end of all text after the end of the turn.
CHANNELS = (
    "{% for m in messages %}<|start|>{{ m['role'] }}<|channel|>final<|message|>{{ m['content'] }}"
    "<|end|>{% endfor %}{% if add_generation_prompt %}<|start|>assistant"
    "{% else %}<|endoftext|>{% endif %}"
)


def tokenizer_of(template: str, *, bos: str = "", eos: str = "", more: tuple[str, ...] = ()) -> Any:
    tokenizer = byte_tokenizer()
    named = {name: word for name, word in (("bos_token", bos), ("eos_token", eos)) if word}
    tokenizer.add_special_tokens(named | {"additional_special_tokens": list(more)})
    tokenizer.chat_template = template
    if bos:  # as these families' tokenizers do with any text, unless they are told not to
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, tokenizer.bos_token_id)]
        )
    return tokenizer


def llama3() -> Any:
    more = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
    return tokenizer_of(LLAMA3, bos="<|begin_of_text|>", eos="<|end_of_text|>", more=more)


def gemma3() -> Any:
    more = ("<start_of_turn>", "<end_of_turn>")
    return tokenizer_of(GEMMA3, bos="<bos>", eos="<eos>", more=more)


def mistral(template: str = MISTRAL) -> Any:
    return tokenizer_of(template, bos="<s>", eos="</s>")


def channels() -> Any:
    return tokenizer_of(CHANNELS, more=("<|start|>", "<|channel|>", "<|message|>", "<|end|>"))
