"""NVML as drivers answer it; errors are the library's own, with its own words."""

from types import ModuleType, SimpleNamespace
from typing import Any

import pynvml


def fake_nvml(
    *answers: tuple[str, int | None, int | None], init_error: int | None = None
) -> ModuleType:
    """A library with a GPU for each (name, total, used); None: "Not Supported"."""
    library: Any = ModuleType("pynvml")
    for name in dir(pynvml):
        if name.startswith("NVMLError"):
            setattr(library, name, getattr(pynvml, name))

    def init() -> None:
        if init_error is not None:
            raise pynvml.NVMLError(init_error)
        library.open = True

    def memory(index: int) -> SimpleNamespace:
        _, total, used = answers[index]
        if total is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return SimpleNamespace(total=total, used=used)

    library.nvmlInit = init
    library.nvmlShutdown = lambda: setattr(library, "open", False)
    library.nvmlDeviceGetCount = lambda: len(answers)
    library.nvmlDeviceGetHandleByIndex = lambda index: index
    library.nvmlDeviceGetName = lambda index: answers[index][0]
    library.nvmlDeviceGetMemoryInfo = memory
    return library  # type: ignore[no-any-return]
