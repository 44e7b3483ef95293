import pynvml
import pytest

from fourge.memory.nvml import Device, DeviceError, devices
from tests.memory.fake_nvml import fake_nvml

GIB = 1 << 30


def test_a_discrete_gpu_says_what_it_has() -> None:
    library = fake_nvml(("NVIDIA GeForce RTX 4090", 24 * GIB, 3 * GIB))
    (device,) = devices(library)
    assert device == Device("NVIDIA GeForce RTX 4090", 24 * GIB, 3 * GIB)
    assert (device.unified, device.left) == (False, 21 * GIB)
    assert library.open is False


def test_a_gpu_that_shares_the_memory_answers_not_supported() -> None:
    (device,) = devices(fake_nvml(("NVIDIA GB10", None, None)))
    assert device.unified
    assert device.left is None


@pytest.mark.parametrize(
    "error", [pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED]
)
def test_a_machine_without_a_driver_has_no_gpu(error: int) -> None:
    assert devices(fake_nvml(init_error=error)) == ()


def test_a_driver_that_fails_is_an_error_and_not_no_gpu() -> None:
    library = fake_nvml(init_error=pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    with pytest.raises(DeviceError, match="version mismatch"):
        devices(library)


def test_a_gpu_that_is_lost_is_an_error() -> None:
    library = fake_nvml(("NVIDIA GB10", None, None))

    def lost(index: int) -> str:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

    library.nvmlDeviceGetName = lost  # type: ignore[attr-defined]
    with pytest.raises(DeviceError, match="GPU is lost"):
        devices(library)
    assert library.open is False
