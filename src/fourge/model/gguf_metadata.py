"""A GGUF's metadata, made from a transformers config and tokenizer.

Only byte-level BPE tokenizers whose pre-tokenizer llama.cpp knows by name are written: with the
wrong name llama.cpp would split text in another way than the model was trained on, silently.
"""

import json
from pathlib import Path
from typing import Any

from fourge.core.errors import FormatError
from fourge.formats.folder import read_json
from fourge.formats.gguf_file import Metadata

_ARCHITECTURE = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}NUMBERS| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# The steps of a pre-tokenizer, whole, and llama.cpp's name for them.
_PRE_TOKENIZERS = {
    (_WORDS.replace("NUMBERS", ""), "ByteLevel"): "qwen2",
    (_WORDS.replace("NUMBERS", "{1,3}"), "ByteLevel"): "llama-bpe",
    ("Digits", "ByteLevel+regex"): "smollm",
    ("ByteLevel+regex",): "gpt-2",
}


def gguf_architecture(config: Any) -> str:
    """GGUF's name for the architecture of a config.

    Raises:
        FormatError: there is none here, or it scales its rotary embedding.
    """
    if config.model_type not in _ARCHITECTURE:
        raise FormatError(
            f"Models of type {config.model_type!r} cannot be written as GGUF.",
            fix=f"use --to compressed-tensors; GGUF takes {', '.join(_ARCHITECTURE)}",
        )
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type", "default") != "default":
        raise FormatError(
            f"A rotary embedding of type {rope['rope_type']!r} cannot be written as GGUF.",
            why="its frequencies would be lost, and long texts come out wrong",
            fix="use --to compressed-tensors",
        )
    if getattr(config, "sliding_window", None) and config.model_type == "mistral":
        raise FormatError(
            "A sliding window cannot be written as GGUF.",
            why="llama.cpp would attend to all of the text, and long texts come out wrong",
            fix="use --to compressed-tensors",
        )
    return _ARCHITECTURE[config.model_type]


def metadata_of(config: Any, tokenizer_folder: Path, name: str) -> Metadata:
    """Everything that llama.cpp needs to know besides the tensors."""
    arch = gguf_architecture(config)
    rope = getattr(config, "rope_parameters", None) or {}
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    metadata: Metadata = {
        "general.architecture": arch,
        "general.type": "model",
        "general.name": name,
        f"{arch}.block_count": config.num_hidden_layers,
        f"{arch}.context_length": config.max_position_embeddings,
        f"{arch}.embedding_length": config.hidden_size,
        f"{arch}.feed_forward_length": config.intermediate_size,
        f"{arch}.attention.head_count": config.num_attention_heads,
        f"{arch}.attention.head_count_kv": config.num_key_value_heads,
        f"{arch}.attention.key_length": head_dim,
        f"{arch}.attention.value_length": head_dim,
        f"{arch}.attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        f"{arch}.rope.freq_base": float(rope.get("rope_theta", 10000.0)),
        f"{arch}.rope.dimension_count": head_dim,
        f"{arch}.vocab_size": config.vocab_size,
    }
    return metadata | _tokenizer(tokenizer_folder, config)


def _tokenizer(folder: Path, config: Any) -> Metadata:
    content = read_json(folder / "tokenizer.json")
    bpe = content.get("model") or {}
    vocab, merges = bpe.get("vocab"), bpe.get("merges")
    if bpe.get("type") != "BPE" or not isinstance(vocab, dict) or not merges:
        raise FormatError(
            "Only byte-level BPE tokenizers can be written as GGUF.",
            why=f"this one is {bpe.get('type')!r}",
            fix="use --to compressed-tensors",
        )
    added_tokens = content.get("added_tokens", [])
    largest = max([*vocab.values(), *(added["id"] for added in added_tokens)])
    if largest >= config.vocab_size:
        raise FormatError(
            f"The tokenizer has token {largest}; the model has {config.vocab_size} of them.",
            why="they do not belong together",
        )
    tokens = [f"[PAD{i}]" for i in range(config.vocab_size)]
    types = [_UNUSED] * config.vocab_size
    for token, index in vocab.items():
        tokens[index], types[index] = token, _NORMAL
    for added in added_tokens:
        tokens[added["id"]] = added["content"]
        types[added["id"]] = _CONTROL if added["special"] else _USER_DEFINED
    metadata: Metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": _pre_tokenizer(content),
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [m if isinstance(m, str) else " ".join(m) for m in merges],
    }
    for key, value in (("bos", config.bos_token_id), ("eos", config.eos_token_id)):
        first = value[0] if isinstance(value, list) else value
        if first is not None:
            metadata[f"tokenizer.ggml.{key}_token_id"] = first
    bos = metadata.get("tokenizer.ggml.bos_token_id")
    after = json.dumps(content.get("post_processor"), ensure_ascii=False)
    metadata["tokenizer.ggml.add_bos_token"] = bos is not None and json.dumps(tokens[bos]) in after
    template = _chat_template(folder)
    return metadata | ({"tokenizer.chat_template": template} if template else {})


def _pre_tokenizer(content: dict[str, Any]) -> str:
    whole = content.get("pre_tokenizer") or {}
    steps = whole.get("pretokenizers", [whole])
    name = _PRE_TOKENIZERS.get(tuple(map(_step, steps)))
    if name is None:
        raise FormatError(
            "llama.cpp's name for this tokenizer's way of splitting text is not known here.",
            why="under a wrong name it would split text differently, and say nothing",
            fix="use --to compressed-tensors",
        )
    return name


def _step(step: dict[str, Any]) -> str:
    """A step by what distinguishes it: the pattern of a split, the type of the others."""
    kind = str(step.get("type"))
    if kind == "Split":
        return str(step.get("pattern", {}).get("Regex"))
    if kind == "ByteLevel" and step.get("use_regex", True):
        return "ByteLevel+regex"
    return kind


def _chat_template(folder: Path) -> str | None:
    if (folder / "chat_template.jinja").exists():
        return (folder / "chat_template.jinja").read_text(encoding="utf-8")
    if not (folder / "tokenizer_config.json").exists():
        return None
    template = read_json(folder / "tokenizer_config.json").get("chat_template")
    return template if isinstance(template, str) else None
