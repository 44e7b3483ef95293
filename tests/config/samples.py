"""The least that a run file must say, and the mistakes of one that is not valid."""

from collections.abc import Callable
from typing import Any

import pytest

from fourge.config.run import Run
from fourge.core.errors import ConfigError

Load = Callable[..., Run]


def tree(**sections: Any) -> dict[str, Any]:
    """The least that a run file must say, with sections replaced or (None) taken away."""
    least: dict[str, Any] = {
        "model": {"path": "smollm2-135m"},
        "data": {"mix": [{"path": "a.jsonl"}]},
        "train": {"steps": 10},
        "out": "runs/x",
    }
    return {name: value for name, value in {**least, **sections}.items() if value is not None}


def refused(load: Load, *settings: str, **sections: Any) -> list[str]:
    """The mistakes of a file that is not valid."""
    with pytest.raises(ConfigError) as caught:
        load(*settings, **sections)
    problem, *lines = caught.value.problem.splitlines()
    assert problem.endswith("run.yaml is not a valid run file.")
    assert all(line.startswith("  ") for line in lines)
    return [line.strip() for line in lines]
