"""Make a loaded model ready for training: which weights, in which form, computed in which dtype.

loaded in the master's dtype -> computing in the compute dtype
                             -> linear layers in NVFP4, packed if the pack is the master
                             -> all but the last N layers frozen, if asked for
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from fourge.core.errors import ConfigError
from fourge.model.mixed import compute_in_
from fourge.model.swap import KEEP_BF16, nvfp4_layers, quantize_, scale_groups_of
from fourge.model.tensors import to_quantize
from fourge.nvfp4.gemm import Scheme
from fourge.optim.masters import MasterFormat
from fourge.train.recompute import Recompute, recompute_

# What a config may do to logits after the head; the chunked loss does none of it.
_AFTER_HEAD = ("final_logit_softcapping", "logit_scale", "logits_scaling")


def storage_dtype(master: MasterFormat) -> torch.dtype:
    """The dtype to load a model in for a kind of master."""
    return torch.float32 if master == "fp32" else torch.bfloat16


def prepare_(
    model: Any,
    *,
    scheme: Scheme | Literal["none"] = "w4a16",
    keep: Sequence[str] = KEEP_BF16,
    backend: str = "auto",
    master: MasterFormat = "bf16",
    compute_dtype: torch.dtype = torch.float32,
    last_layers: int | None = None,
    recompute: Recompute = "block",
) -> list[tuple[str, Tensor]]:
    """Prepare in place; the parameters to train, by name.

    Raises:
        ConfigError: a setting that this model cannot have.
    """
    _require_plain_head(model)
    compute_in_(model, compute_dtype)
    if scheme != "none" and not nvfp4_layers(model):
        to_quantize(model, keep)  # refuses a name on the list that is no layer's
        quantize_(model, scheme=scheme, keep=keep, backend=backend)
    if master == "nvfp4":
        for group in scale_groups_of(model):
            group.pack_()
    if last_layers is not None:
        freeze_but_last_(model, last_layers)
    recompute_(model, recompute)
    model.train()
    model.config.use_cache = False
    return [(name, param) for name, param in model.named_parameters() if param.requires_grad]


def freeze_but_last_(model: Any, count: int) -> None:
    """Train the last blocks and the final norm; everything else gets no gradient at all."""
    layers = model.base_model.layers
    if not 1 <= count <= len(layers):
        raise ConfigError(
            f"train.last_layers is {count}; the model has {len(layers)} layers.",
            fix=f"a number from 1 to {len(layers)}, or leave it out to train everything",
        )
    model.requires_grad_(False)
    for layer in layers[-count:]:
        layer.requires_grad_(True)
    model.base_model.norm.requires_grad_(True)


def _require_plain_head(model: Any) -> None:
    for name in _AFTER_HEAD:
        value = getattr(model.config, name, None)
        if value not in (None, 1.0):
            raise ConfigError(
                f"The model's config sets {name} to {value}.",
                why="the chunked loss multiplies by the head and does nothing to the logits after",
                fix="train a model without it",
            )
    if model.get_output_embeddings().bias is not None:
        raise ConfigError(
            "The model's head has a bias.", why="the chunked loss has no place for it"
        )
