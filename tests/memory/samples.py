"""Tiny models as a plan wants them."""

from typing import Any

from fourge.memory.wanted import Wanted
from tests.conftest import tiny_config


def wanted(family: str = "qwen3", *, tied: bool = True, layers: int = 2, **settings: Any) -> Wanted:
    from fourge.memory.wanted import shallow

    config = tiny_config(family, tied=tied)
    if layers <= 2:
        config = shallow(config, layers)
    else:
        config.num_hidden_layers = layers
        if getattr(config, "layer_types", None):
            config.layer_types = [config.layer_types[0]] * layers
    return Wanted(config=config, **{"tokens": 16, **settings})
