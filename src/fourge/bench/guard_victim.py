"""Processes for ``fourge bench guard`` that take memory: as fast as they can, or in breaths.

    python -m fourge.bench.guard_victim fill COUNTERS CHILDREN PIECE_MIB AT_MOST_MIB
    python -m fourge.bench.guard_victim breathe GIB SECONDS

``fill`` maps pieces and touches every page of them, 1 MiB at a time, and counts in a file that is
mapped by whoever measures: what was really taken, to the last MiB, is known after the kill too.
Each child has a slot of its own. It stops by itself at AT_MOST, so that no guard is needed to keep
the machine safe.
"""

import ctypes
import mmap
import os
import struct
import sys
import time

MIB = 1 << 20
SLOT = struct.Struct("=qd")  # bytes touched, seconds it took


def fill(counters: str, children: int, piece: int, at_most: int) -> None:
    """Fill with so many processes at once; then stay, holding what was taken."""
    for slot in range(children - 1):
        if os.fork() == 0:
            _fill_one(counters, slot, piece, at_most // children)
    _fill_one(counters, children - 1, piece, at_most // children)


def _fill_one(counters: str, slot: int, piece: int, at_most: int) -> None:
    descriptor = os.open(counters, os.O_RDWR)
    shared = mmap.mmap(descriptor, 0)
    held, touched, began = [], 0, time.perf_counter()
    while touched < at_most:
        held.append(mmap.mmap(-1, piece))
        address = ctypes.addressof(ctypes.c_char.from_buffer(held[-1]))
        for start in range(0, piece, MIB):
            ctypes.memset(address + start, 1, MIB)
            touched += MIB
            SLOT.pack_into(shared, slot * SLOT.size, touched, time.perf_counter() - began)
            if touched >= at_most:
                break
    time.sleep(60)


def breathe(nbytes: int, seconds: float) -> None:
    """Once a second: take so much, hold it for a moment, give it back. As a training step does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        with mmap.mmap(-1, nbytes) as held:
            for start in range(0, nbytes, 64 * MIB):
                size = min(64 * MIB, nbytes - start)
                address = ctypes.c_char.from_buffer(held, start)
                ctypes.memset(ctypes.addressof(address), 1, size)
                del address
        time.sleep(max(0.0, began + 1.0 - time.monotonic()))


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        fill(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) * MIB, int(sys.argv[5]) * MIB)
    else:
        breathe(int(float(sys.argv[2]) * 2**30), float(sys.argv[3]))
