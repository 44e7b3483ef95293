import mmap
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from fourge.guard.counters import Counters
from fourge.memory.meter import Memory, tree_bytes
from fourge.memory.nvml import Device
from tests.guard.trees import GIB, SPARK, meminfo, v2, write

MIB = 1 << 20


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


@pytest.fixture
def family() -> Iterator[int]:
    """A process with 64 MiB that it shares with its three children; its id."""
    parent = os.fork()
    if parent == 0:
        shared = mmap.mmap(-1, 64 * MIB)
        shared.write(b"x" * len(shared))
        for _ in range(3):
            if os.fork() == 0:
                shared.seek(0)
                shared.read()  # mapped by every child, owned by none
                break
        time.sleep(60)
        os._exit(0)
    tree = psutil.Process(parent)
    deadline = time.monotonic() + 20
    while len(tree.children()) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)  # for the last child's read
    yield parent
    for each in (*tree.children(recursive=True), tree):
        os.kill(each.pid, signal.SIGKILL)
    os.waitpid(parent, 0)


def test_what_a_tree_shares_is_counted_once(family: int) -> None:
    tree = psutil.Process(family)
    everyone = (tree, *tree.children(recursive=True))
    resident = sum(each.memory_info().rss for each in everyone)
    found = tree_bytes(family)
    assert found > tree.memory_full_info().pss  # the children's own are in it
    assert found < resident - 2 * 64 * MIB
    assert found > 0.9 * 64 * MIB / len(everyone)


def test_a_process_that_left_while_it_was_counted_counts_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    time.sleep(0.1)  # a zombie until it is waited for
    assert tree_bytes(os.getpid()) > 0
    os.waitpid(child, 0)
    with pytest.raises(psutil.NoSuchProcess):
        tree_bytes(child)
