"""Processes for ``fourge bench guard`` that take memory: as fast as they can, or in breaths.

    python -m fourge.bench.guard_victim fill COUNTERS CHILDREN PIECE_MIB AT_MOST_MIB
    python -m fourge.bench.guard_victim breathe GIB SECONDS

``fill`` maps pieces and touches every page of them, 1 MiB at a time, and counts in a file that is
mapped by whoever measures: what was really taken, to the last MiB, is known after the kill too.
Each child has a slot of its own. It stops by itself at AT_MOST, so that no guard is needed to keep
the machine safe.
"""

import contextlib
import ctypes
import mmap
import os
import random
import signal
import struct
import sys
import time

MIB = 1 << 20
SLOT = struct.Struct("=qd")  # bytes touched, seconds it took


def fill(counters: str, children: int, piece: int, at_most: int) -> None:
    """Fill with so many processes at once, deaf to being asked; then hold it for a moment.

    It begins at no particular moment, as jobs do: a poller may be lucky, but not every time.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(random.random() / 2)
    for slot in range(children - 1):
        if os.fork() == 0:
            _fill_one(counters, slot, piece, at_most // children)
    _fill_one(counters, children - 1, piece, at_most // children)


def _fill_one(counters: str, slot: int, piece: int, at_most: int) -> None:
    descriptor = os.open(counters, os.O_RDWR)
    shared = mmap.mmap(descriptor, 0)
    held, touched, began = [], 0, time.perf_counter()
    while touched < at_most:
        held.append(_mapped(piece))
        for start in range(0, piece, MIB):
            _touch(held[-1], start, MIB)
            touched += MIB
            SLOT.pack_into(shared, slot * SLOT.size, touched, time.perf_counter() - began)
            if touched >= at_most:
                break
    time.sleep(5)


def warm(nbytes: int) -> None:
    """Take memory and give it back: whoever takes it next need not wait for a virtual host."""
    held = _mapped(nbytes)
    _touch(held, 0, nbytes)
    held.close()


def breathe(nbytes: int, seconds: float) -> None:
    """Once a second: take so much, give it back. As a training step does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        warm(nbytes)
        time.sleep(max(0.0, began + 1.0 - time.monotonic()))


def _mapped(nbytes: int) -> mmap.mmap:
    """Memory of our own, in huge pages where they fit: the kernel clears those fastest."""
    mapped = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without huge pages
        mapped.madvise(mmap.MADV_HUGEPAGE)
    return mapped


def _touch(mapped: mmap.mmap, start: int, nbytes: int) -> None:
    ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(mapped, start)), 1, nbytes)


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        fill(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) * MIB, int(sys.argv[5]) * MIB)
    else:
        breathe(int(float(sys.argv[2]) * 2**30), float(sys.argv[3]))
