from pathlib import Path

from fourge.guard.counters import Counters
from fourge.memory.meter import Memory
from fourge.memory.nvml import Device
from tests.guard.trees import GIB, SPARK, meminfo, v2, write


def look(root: Path, *devices: Device) -> Memory:
    with Counters(root) as counters:
        return Memory(counters.read(), devices)


def test_without_a_gpu_the_machine_runs_out(tmp_path: Path) -> None:
    found = look(write(tmp_path, {"proc/meminfo": meminfo(total=32 * GIB, available=20 * GIB)}))
    assert (found.kind, found.left, found.left_for_device) == ("cpu", 20 * GIB, None)
    assert found.source() == "MemAvailable, of 32 GiB"


def test_a_gpu_of_its_own_runs_out_by_itself(tmp_path: Path) -> None:
    tree = write(tmp_path, {"proc/meminfo": meminfo(total=32 * GIB, available=20 * GIB)})
    found = look(tree, Device("A", 24 * GIB, 20 * GIB), Device("B", 24 * GIB, GIB))
    assert (found.kind, found.left, found.left_for_device) == ("gpu", 20 * GIB, 23 * GIB)


def test_on_one_pool_page_cache_is_left_but_not_for_the_gpu(tmp_path: Path) -> None:
    found = look(write(tmp_path, {"proc/meminfo": SPARK}), Device("NVIDIA GB10", None, None))
    assert found.kind == "unified"
    assert found.left == 116820344 * 1024
    assert found.left_for_device == 48230912 * 1024


def test_in_a_container_the_smaller_counts_and_the_gpu_is_not_in_it(tmp_path: Path) -> None:
    own = v2("sys/fs/cgroup/box", limit=str(16 * GIB), current=5 * GIB, inactive_file=GIB)
    tree = {"proc/meminfo": SPARK, "proc/self/cgroup": "0::/box\n", **own}
    found = look(write(tmp_path, tree), Device("NVIDIA GB10", None, None))
    assert found.left == 12 * GIB
    assert found.source() == "the cgroup's limit of 16 GiB"
    assert found.left_for_device == 48230912 * 1024
