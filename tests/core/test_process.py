"""Memory of the process, against what is really allocated."""

import ctypes
from pathlib import Path

import pytest
import torch

from fourge.core import process
from fourge.core.process import available_bytes, peak_bytes, reset_peak, resident_bytes, trim_heap

MB = 1 << 20
needs_proc = pytest.mark.skipif(resident_bytes() == 0, reason="the system has no /proc")


def resets() -> bool:
    """Whether this kernel forgets a peak when asked to; some containers' do not."""
    torch.ones(100 * MB, dtype=torch.uint8)
    Path("/proc/self/clear_refs").write_text("5")
    return 0 < peak_bytes() < resident_bytes() + 50 * MB


@needs_proc
def test_an_allocation_is_seen_while_it_lives() -> None:
    before = resident_bytes()
    block = torch.ones(200 * MB, dtype=torch.uint8)
    held = resident_bytes()
    assert 195 * MB < held - before < 260 * MB
    del block
    assert resident_bytes() < held - 150 * MB


@needs_proc
def test_the_peak_remembers_what_is_gone_until_it_is_reset() -> None:
    if not resets():
        pytest.skip("the kernel keeps the peak of the whole process")
    base = peak_bytes()
    torch.ones(200 * MB, dtype=torch.uint8)
    assert base + 150 * MB < peak_bytes() < base + 300 * MB
    reset_peak()
    assert peak_bytes() < base + 100 * MB
    assert peak_bytes() >= resident_bytes() - 16 * MB


@needs_proc
def test_what_is_available_is_some_of_the_machine() -> None:
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    total = int(fields["MemTotal"].split()[0]) * 1024
    assert 0 < available_bytes() <= total


def test_trimming_and_resetting_are_always_allowed() -> None:
    trim_heap()
    reset_peak()
    kept = torch.arange(1000)
    trim_heap()
    assert torch.equal(kept, torch.arange(1000))


@needs_proc
def test_trimming_gives_freed_memory_back() -> None:
    if not hasattr(ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("another C library")
    trim_heap()
    pieces = [bytearray(b"x" * 60_000) for _ in range(2000)]  # too small to be mapped one by one
    keep = pieces[::100]  # holes, and a top that is in use
    pieces.clear()
    before = resident_bytes()
    trim_heap()
    assert resident_bytes() < before - 50 * MB
    assert all(piece == b"x" * 60_000 for piece in keep)


@pytest.mark.parametrize("library", [object(), None])
def test_without_the_call_trimming_does_nothing(
    monkeypatch: pytest.MonkeyPatch, library: object
) -> None:
    def load(name: None) -> object:
        if library is None:
            raise OSError("no such library")
        return library

    monkeypatch.setattr(ctypes, "CDLL", load)
    trim_heap()


def test_where_proc_is_missing_all_is_zero(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("_STATUS", "_CLEAR", "_MEMINFO"):
        monkeypatch.setattr(process, name, tmp_path / "no" / name)
    assert (resident_bytes(), peak_bytes(), available_bytes()) == (0, 0, 0)
    reset_peak()


def test_a_field_that_is_not_there_is_zero(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tx\nVmRSS:\t     12 kB\n")
    monkeypatch.setattr(process, "_STATUS", status)
    assert resident_bytes() == 12 * 1024
    assert peak_bytes() == 0
