import pytest

from fourge.nvfp4 import compiled


@pytest.fixture(autouse=True)
def _plain_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled stages are held to plain ones elsewhere; compiling is slower than training here."""
    monkeypatch.setattr(compiled, "_can_compile", lambda device: False)
