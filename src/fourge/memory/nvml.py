"""The GPUs of this machine and their memory, as NVIDIA's management library tells it.

A GPU with memory of its own says how much it has and how much is used. One that shares the
machine's (GB10 in a DGX Spark) answers "Not Supported": that is how it is recognised, without
touching the device. No library means no NVIDIA GPU; a library that fails otherwise is a broken
driver, and an error.
"""

from dataclasses import dataclass
from types import ModuleType

import pynvml

from fourge.core.errors import FourgeError


class DeviceError(FourgeError):
    """A GPU that cannot be asked about its memory."""


@dataclass(frozen=True, slots=True)
class Device:
    """``total`` and ``used`` are None where the memory is the machine's own."""

    name: str
    total: int | None
    used: int | None

    @property
    def unified(self) -> bool:
        return self.total is None

    @property
    def left(self) -> int | None:
        return None if self.total is None or self.used is None else self.total - self.used


def devices(library: ModuleType = pynvml) -> tuple[Device, ...]:
    """Every NVIDIA GPU that the driver knows.

    Raises:
        DeviceError: the driver is there and does not answer.
    """
    try:
        library.nvmlInit()
    except (library.NVMLError_LibraryNotFound, library.NVMLError_DriverNotLoaded):
        return ()
    except library.NVMLError as error:
        raise _broken(error) from error
    try:
        count = library.nvmlDeviceGetCount()
        return tuple(_device(library, library.nvmlDeviceGetHandleByIndex(i)) for i in range(count))
    except library.NVMLError as error:
        raise _broken(error) from error
    finally:
        library.nvmlShutdown()


def _device(library: ModuleType, handle: object) -> Device:
    name = library.nvmlDeviceGetName(handle)
    try:
        memory = library.nvmlDeviceGetMemoryInfo(handle)
    except library.NVMLError_NotSupported:
        return Device(name, None, None)
    return Device(name, int(memory.total), int(memory.used))


def _broken(error: Exception) -> DeviceError:
    return DeviceError(
        "The NVIDIA driver does not answer.",
        why=f"NVML says: {error}",
        fix="run nvidia-smi; after a driver update, restart the machine",
    )
