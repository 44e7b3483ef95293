"""GGUF's names and row orders for the tensors of a transformers model, and back.

Two things differ besides names. The llama architecture interleaves the rows of q and k, because
ggml rotates neighbouring pairs where transformers rotates halves. And Gemma's norm weights are
stored with the 1 added that the model adds at run time.
"""

import re
from functools import partial
from math import prod

import torch
from torch import Tensor

from fourge.core.errors import FormatError
from fourge.formats.stored import NVFP4, Stored, Tensors
from fourge.nvfp4.matrix import Nvfp4Matrix

_TOP = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
_LAYER = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
}
_TWO_NORMS = {"post_attention_layernorm": "ffn_norm"}
_FOUR_NORMS = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3")


def require_architecture(architecture: str) -> None:
    """Raise unless we know how this architecture names and orders its tensors."""
    if architecture not in ARCHITECTURES:
        raise FormatError(
            f"GGUF models of architecture {architecture!r} are not supported.",
            why="the order of their rows is not known here, and a guess would load as noise",
            fix=f"use a transformers folder, or one of: {', '.join(ARCHITECTURES)}",
        )


def to_transformers(
    tensors: Tensors, architecture: str, heads: int, kv_heads: int
) -> dict[str, Stored]:
    """A GGUF's tensors under transformers' names and in transformers' row order.

    Raises:
        FormatError: a name that the architecture does not have.
    """
    require_architecture(architecture)
    table = {v: k for k, v in _layer_table(architecture).items()}
    top = {v: k for k, v in _TOP.items()}
    renamed: dict[str, Stored] = {}
    for name, stored in tensors.items():
        base, _, suffix = name.rpartition(".")
        layer = re.fullmatch(r"blk\.(\d+)\.(\w+)", base)
        if base in top:
            new = top[base]
        elif layer and layer[2] in table:
            new = f"model.layers.{layer[1]}.{table[layer[2]]}"
        else:
            raise FormatError(
                f"The GGUF has a tensor {name!r}.",
                why=f"a {architecture} model has none of that name, so it would be left out",
            )
        renamed[f"{new}.{suffix}"] = _adapted(new, stored, architecture, heads, kv_heads, back=True)
    return renamed


def from_transformers(
    tensors: Tensors, architecture: str, heads: int, kv_heads: int
) -> dict[str, Stored]:
    """A model's tensors under GGUF's names and in GGUF's row order.

    Raises:
        FormatError: a name that has no place in a GGUF of this architecture.
    """
    require_architecture(architecture)
    table = _layer_table(architecture)
    renamed: dict[str, Stored] = {}
    for name, stored in tensors.items():
        base, _, suffix = name.rpartition(".")
        layer = re.fullmatch(r"model\.layers\.(\d+)\.(.+)", base)
        if base in _TOP:
            new = _TOP[base]
        elif layer and layer[2] in table:
            new = f"blk.{layer[1]}.{table[layer[2]]}"
        else:
            raise FormatError(f"{name!r} has no name in a GGUF of architecture {architecture!r}.")
        renamed[f"{new}.{suffix}"] = _adapted(
            base, stored, architecture, heads, kv_heads, back=False
        )
    return renamed


def _layer_table(architecture: str) -> dict[str, str]:
    return _LAYER | (_FOUR_NORMS if architecture == "gemma3" else _TWO_NORMS)


def _adapted(
    base: str, stored: Stored, architecture: str, heads: int, kv_heads: int, *, back: bool
) -> Stored:
    if architecture == "llama" and base.endswith(("q_proj", "k_proj")) and stored.shape:
        count = heads if base.endswith("q_proj") else kv_heads
        read = partial(_reordered, base, stored, count, back)
        return Stored(stored.shape, stored.kind, stored.nbytes, read)
    if architecture == "gemma3" and base.endswith("norm"):
        read_norm = partial(_shifted, stored, -1.0 if back else 1.0)
        return Stored(stored.shape, "f32", 4 * prod(stored.shape), read_norm)
    return stored


def _reordered(base: str, stored: Stored, heads: int, back: bool) -> Tensor | Nvfp4Matrix:
    rows = stored.shape[0]
    if not prod(stored.shape) or rows % (2 * heads):
        raise FormatError(f"{base}: {rows} rows do not divide into {heads} heads of two halves.")
    order = torch.arange(rows).view(heads, 2, -1).transpose(1, 2).flatten()
    if back:
        order = order.argsort()
    return stored.matrix().rows(order) if stored.kind == NVFP4 else stored.dense()[order]


def _shifted(stored: Stored, by: float) -> Tensor:
    return stored.dense().float() + by
