"""What memory is used and what is left, on whatever kind of machine this is.

| machine       | what runs out            | asked of                                            |
|---------------|--------------------------|-----------------------------------------------------|
| no GPU        | the machine's memory     | MemAvailable, or a cgroup's limit where that is less |
| GPU of its own| that, and the GPU's      | the same; NVML for the GPU                          |
| unified GPU   | one pool for both        | MemAvailable and MemFree                            |

On a unified machine page cache is the difference. The kernel gives it back to a process that
asks for memory, so it counts as left; the driver does not wait for that and fails, so a device
allocation can count on MemFree alone. A cgroup's limit does not see the driver's allocations at
all, hence what is left of the machine always counts too.
"""

from dataclasses import dataclass
from typing import Literal

from fourge.core.units import size
from fourge.guard.counters import Reading
from fourge.memory.nvml import Device

Kind = Literal["cpu", "gpu", "unified"]


@dataclass(frozen=True, slots=True)
class Memory:
    """One look at the machine."""

    host: Reading
    devices: tuple[Device, ...] = ()

    @property
    def kind(self) -> Kind:
        if not self.devices:
            return "cpu"
        return "unified" if any(device.unified for device in self.devices) else "gpu"

    @property
    def left(self) -> int:
        """What a process can still have, caches given back."""
        return self.host.left

    @property
    def left_for_device(self) -> int | None:
        """What an allocation on the GPU can count on; of several GPUs the one with most left."""
        if self.kind == "unified":
            return min(self.host.free, self.host.available)
        return max(
            (device.left for device in self.devices if device.left is not None), default=None
        )

    def source(self) -> str:
        """Where ``left`` comes from, for people."""
        host = self.host
        if host.left < host.available:
            return f"the cgroup's limit of {size(host.cgroup_limit or 0)}"
        return f"MemAvailable, of {size(host.total)}"
