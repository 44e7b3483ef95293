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
from fourge.model.norm import lean_norms_
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
    require_trainable(model, scheme=scheme, keep=keep, master=master, last_layers=last_layers)
    lean_norms_(model)
    compute_in_(model, compute_dtype)
    if scheme != "none" and not nvfp4_layers(model):
        quantize_(model, scheme=scheme, keep=keep, backend=backend)
    if master == "nvfp4":
        for group in scale_groups_of(model):
            group.pack_()
    if last_layers is not None:
        freeze_but_last_(model, last_layers)
    recompute_(model, recompute)
    model.train()
    return trained_parameters(model)


def trained_parameters(model: Any) -> list[tuple[str, Tensor]]:
    """What gets a gradient, by name."""
    return [(name, param) for name, param in model.named_parameters() if param.requires_grad]


def require_trainable(
    model: Any,
    *,
    scheme: Scheme | Literal["none"],
    keep: Sequence[str],
    master: MasterFormat,
    last_layers: int | None,
) -> None:
    """Raise for settings that this model cannot have; one without weights will do."""
    _require_plain_head(model)
    _require_no_dropout(model)
    _require_scheme(model, scheme)
    if scheme != "none" and not nvfp4_layers(model):
        to_quantize(model, keep)  # refuses a name on the list that is no layer's
    if master == "nvfp4" and "lm_head" not in keep and model.config.tie_word_embeddings:
        raise ConfigError(
            "A head that is the embedding cannot be packed.",
            why="with master nvfp4 the head would be codes, and the embedding is not",
            fix="keep lm_head on model.keep_bf16",
        )
    layers = len(model.base_model.layers)
    if last_layers is not None and not 1 <= last_layers <= layers:
        raise ConfigError(
            f"train.last_layers is {last_layers}; the model has {layers} layers.",
            fix=f"a number from 1 to {layers}, or leave it out to train everything",
        )


def freeze_but_last_(model: Any, count: int) -> None:
    """Train the last blocks and the final norm; everything else gets no gradient at all."""
    model.requires_grad_(False)
    for layer in model.base_model.layers[-count:]:
        layer.requires_grad_(True)
    model.base_model.norm.requires_grad_(True)


def _require_scheme(model: Any, scheme: str) -> None:
    """Raise if the layers are NVFP4 already, in another way than is asked for."""
    found = {layer.scheme for layer in nvfp4_layers(model).values()}
    if found and found != {scheme}:
        raise ConfigError(
            f"The model is NVFP4 already, {' and '.join(sorted(found))}; model.scheme is {scheme}.",
            fix=f"set model.scheme: {sorted(found)[0]}, or start from the dense model",
        )


def _require_no_dropout(model: Any) -> None:
    for name, value in model.config.to_dict().items():
        if "dropout" in name and isinstance(value, int | float) and value > 0:
            raise ConfigError(
                f"The model's config sets {name} to {value}.",
                why="its noise comes from torch's global generator: a resumed run would differ",
                fix=f"set {name} to 0 in the model's config.json",
            )


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
