from typing import Any

import pytest

from fourge.core.errors import ConfigError
from fourge.memory.wanted import shallow
from tests.conftest import tiny_config
from tests.memory.samples import wanted


@pytest.mark.parametrize(
    "settings", [{"tokens": 1}, {"batch": 0}, {"master": "nvfp4", "scheme": "none"}]
)
def test_what_cannot_be_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        wanted(**settings)


def test_a_shallow_config_is_a_copy_with_fewer_of_everything_per_layer() -> None:
    config = tiny_config("gemma3_text", tied=True)
    small = shallow(config, 1)
    assert (small.num_hidden_layers, len(small.layer_types)) == (1, 1)
    assert (config.num_hidden_layers, len(config.layer_types)) == (2, 2)


def test_all_layers_are_trained_unless_it_says_otherwise() -> None:
    assert wanted(layers=5).trained_layers == 5
    assert wanted(layers=5, last_layers=2).trained_layers == 2
    assert wanted(tokens=8, batch=3).positions == 24
