"""What is to be trained, and how: everything that a plan depends on, and nothing else."""

import copy
from dataclasses import dataclass
from typing import Any, Literal

import torch

from fourge.core.errors import ConfigError
from fourge.model.swap import KEEP_BF16
from fourge.nvfp4.gemm import Scheme
from fourge.optim.masters import MasterFormat
from fourge.optim.moments import MomentFormat
from fourge.train.loss import chunk_of
from fourge.train.prepare import storage_dtype
from fourge.train.recompute import Recompute


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One micro-step of training, at its largest: every sequence full, every token a target."""

    config: Any  # transformers'
    tokens: int  # per sequence
    batch: int = 1
    padded: bool = False  # sequences of different lengths need a mask
    scheme: Scheme | Literal["none"] = "w4a16"
    keep: tuple[str, ...] = KEEP_BF16
    master: MasterFormat = "bf16"
    moments: MomentFormat = "int8"
    compute: torch.dtype = torch.float32
    device: str = "cpu"
    recompute: Recompute = "block"
    release: bool = True
    accumulate: int = 1
    two_pass: bool = False
    loss_chunk: int | None = None
    last_layers: int | None = None
    chunk_rows: int | None = None
    taught_positions: int = 0  # held to the base model, in the whole data
    top_k: int = 32
    loader: int = 0  # bytes that loading holds beside the model
    world_size: int = 1  # processes that share the model; ``batch`` is what one of them computes

    def __post_init__(self) -> None:
        if self.world_size < 1:
            raise ConfigError(f"A world of {self.world_size} processes computes nothing.")
        if self.world_size > 1 and self.master == "nvfp4":
            raise ConfigError(
                "Several processes cannot share master nvfp4.", fix="use another master"
            )
        if self.tokens < 2 or self.batch < 1:
            raise ConfigError("A plan needs at least 2 tokens and 1 sequence.")
        if self.master == "nvfp4" and self.scheme == "none":
            raise ConfigError(
                "Master nvfp4 needs NVFP4 layers.", fix="use the scheme w4a16, or another master"
            )

    @property
    def layers(self) -> int:
        return int(self.config.num_hidden_layers)

    @property
    def trained_layers(self) -> int:
        return self.last_layers or self.layers

    @property
    def positions(self) -> int:
        return self.batch * self.tokens

    @property
    def chunk(self) -> int:
        """Positions whose logits exist at once."""
        shape = (self.config.vocab_size, self.config.hidden_size)
        trained = self.last_layers is None
        itemsize = storage_dtype(self.master).itemsize if trained else 4
        return chunk_of(self.positions, shape, itemsize, self.loss_chunk)


def shallow(config: Any, layers: int) -> Any:
    """A copy of a config with this many layers, which are those of the original."""
    count = config.num_hidden_layers
    small = copy.deepcopy(config)
    for name, value in vars(config).items():
        if isinstance(value, list) and len(value) == count:  # one entry per layer
            setattr(small, name, value[:layers])
    small.num_hidden_layers = layers
    return small
