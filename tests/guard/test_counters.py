from pathlib import Path

import pytest

from fourge.guard.counters import CounterError, Counters, Reading
from tests.guard.trees import GIB, SPARK, meminfo, v1, v2, write

HOST = meminfo(total=64 * GIB, available=40 * GIB)
CGROUP = "sys/fs/cgroup"
SCOPE = "user.slice/user-1000.slice/session-3.scope"


def look(root: Path) -> Reading:
    with Counters(root) as counters:
        return counters.read()


def test_a_spark_says_what_is_available_and_not_what_is_free(tmp_path: Path) -> None:
    found = look(write(tmp_path, {"proc/meminfo": SPARK}))
    assert (found.total, found.available) == (125513872 * 1024, 116820344 * 1024)
    assert (found.free, found.swap_free) == (48230912 * 1024, 16770044 * 1024)
    assert found.cgroup_limit is None
    assert found.left == found.available
    assert found.used == (125513872 - 116820344) * 1024
    assert found.capacity == found.total


def test_this_machine_can_be_read_and_numbers_make_sense() -> None:
    found = look(Path("/"))
    assert 0 < found.left <= found.available < found.total
    assert 0 < found.used <= found.total


@pytest.mark.parametrize("text", [f"0::/{SCOPE}\n", f"1:name=systemd:/x\n0::/{SCOPE}\n"])
def test_v2_counts_what_cannot_be_dropped_against_the_limit(tmp_path: Path, text: str) -> None:
    own = v2(f"{CGROUP}/{SCOPE}", limit=str(8 * GIB), current=7 * GIB, inactive_file=3 * GIB)
    found = look(write(tmp_path, {"proc/meminfo": HOST, "proc/self/cgroup": text, **own}))
    assert (found.cgroup_limit, found.cgroup_used) == (8 * GIB, 4 * GIB)
    assert (found.left, found.used, found.capacity) == (4 * GIB, 4 * GIB, 8 * GIB)


def test_v1_reads_the_whole_trees_cache(tmp_path: Path) -> None:
    text = "9:name=systemd:/\n4:cpu,memory:/jobs/one\n0::/\n"
    own = v1(f"{CGROUP}/memory/jobs/one", limit=8 * GIB, usage=7 * GIB, inactive_file=GIB)
    found = look(write(tmp_path, {"proc/meminfo": HOST, "proc/self/cgroup": text, **own}))
    assert (found.cgroup_limit, found.cgroup_used) == (8 * GIB, 6 * GIB)


@pytest.mark.parametrize("none", [9223372036854771712, 9223372036854710272])  # 4 and 64 KiB pages
def test_v1_without_a_limit_is_the_machine(tmp_path: Path, none: int) -> None:
    own = v1(f"{CGROUP}/memory", limit=none, usage=7 * GIB, inactive_file=GIB)
    tree = {"proc/meminfo": HOST, "proc/self/cgroup": "4:memory:/\n", **own}
    found = look(write(tmp_path, tree))
    assert (found.cgroup_limit, found.left, found.used) == (None, 40 * GIB, 24 * GIB)


def test_an_ancestor_with_less_left_counts(tmp_path: Path) -> None:
    tree = {
        "proc/meminfo": HOST,
        "proc/self/cgroup": f"0::/{SCOPE}\n",
        **v2(f"{CGROUP}/{SCOPE}", limit="max", current=GIB, inactive_file=0),
        **v2(f"{CGROUP}/user.slice/user-1000.slice", limit=str(32 * GIB), current=30 * GIB,
             inactive_file=0),
        **v2(f"{CGROUP}/user.slice", limit=str(16 * GIB), current=10 * GIB, inactive_file=0),
    }  # fmt: skip
    found = look(write(tmp_path, tree))
    assert (found.cgroup_limit, found.left) == (32 * GIB, 2 * GIB)


@pytest.mark.parametrize("inside", ["/", "/docker/4f0c", "/../../other.slice"])
def test_in_a_container_the_mount_is_our_cgroup(tmp_path: Path, inside: str) -> None:
    own = v2(CGROUP, limit=str(8 * GIB), current=5 * GIB, inactive_file=GIB)
    tree = {"proc/meminfo": HOST, "proc/self/cgroup": f"0::{inside}\n", **own}
    assert look(write(tmp_path, tree)).left == 4 * GIB


def test_a_limit_above_what_the_machine_has_does_not_help(tmp_path: Path) -> None:
    own = v2(CGROUP, limit=str(100 * GIB), current=5 * GIB, inactive_file=GIB)
    found = look(write(tmp_path, {"proc/meminfo": HOST, "proc/self/cgroup": "0::/\n", **own}))
    assert (found.left, found.used, found.capacity) == (40 * GIB, 24 * GIB, 64 * GIB)


def test_the_files_stay_open_and_are_read_again(tmp_path: Path) -> None:
    write(tmp_path, {"proc/meminfo": HOST})
    with Counters(tmp_path) as counters:
        assert counters.read().available == 40 * GIB
        (tmp_path / "proc/meminfo").write_text(meminfo(total=64 * GIB, available=9 * GIB))
        assert counters.read().available == 9 * GIB
        assert counters.sources() == (str(tmp_path / "proc/meminfo"),)


@pytest.mark.parametrize(
    ("broken", "text"),
    [("proc/meminfo", "MemTotal: 5 kB\nMemFree: 4 kB\n"), ("proc/meminfo", ""),
     ("memory.max", "lots\n"), ("memory.current", ""), ("memory.stat", "anon 5\n")],
)  # fmt: skip
def test_what_cannot_be_understood_is_an_error_that_names_the_file(
    tmp_path: Path, broken: str, text: str
) -> None:
    own = v2(CGROUP, limit=str(8 * GIB), current=5 * GIB, inactive_file=GIB)
    write(tmp_path, {"proc/meminfo": HOST, "proc/self/cgroup": "0::/\n", **own})
    path = tmp_path / broken if "/" in broken else tmp_path / CGROUP / broken
    with Counters(tmp_path) as counters:
        counters.read()
        path.write_text(text)
        with pytest.raises(CounterError, match=str(path)):
            counters.read()


def test_the_missing_field_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"proc/meminfo": "MemTotal: 5 kB\nMemFree: 4 kB\n"})
    with Counters(tmp_path) as counters, pytest.raises(CounterError, match="no MemAvailable"):
        counters.read()


def test_a_missing_file_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(CounterError, match="proc/meminfo cannot be opened"):
        Counters(tmp_path)
