"""What a rank sends in a step, and how long that takes on a link.

For N ranks, a ring, and what every rank sends:

    gather   2 x (N - 1) / N of every block (forward, and again for backward) and once of embedding
             and head: codes and block scales, 0.5625 bytes a weight; in bf16 it would be 2
    sum      (N - 1) / N of every trained matrix in float32, 4 bytes a weight; with gloo twice that
    copies   2 x (N - 1) / N of the vectors, float32

times the number of micro-batches. A link carries it in both directions at once, so the time is what
one rank sends over the link's speed. Overlapped with computing it may cost nothing; in the worst
case the two add up.
"""

from dataclasses import dataclass

from fourge.memory.inventory import LAYER, Inventory, take_inventory
from fourge.memory.sharded import SUMMED, gathered_nbytes, padded_elements, sums_whole
from fourge.memory.wanted import Wanted
from fourge.train.prepare import storage_dtype

BF16 = 2


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that one rank sends in a step."""

    gathered: int
    gathered_in_bf16: int  # what ``gathered`` would be without codes
    summed: int

    @property
    def total(self) -> int:
        return self.gathered + self.summed

    def seconds(self, bytes_per_s: float) -> float:
        return self.total / bytes_per_s


def traffic(wanted: Wanted) -> Traffic:
    """The traffic of a step; none, of one process."""
    return traffic_of(wanted, take_inventory(wanted))


def traffic_of(wanted: Wanted, inventory: Inventory) -> Traffic:
    size, item = wanted.world_size, storage_dtype(wanted.master).itemsize
    times = 2 if sums_whole(wanted) else 1
    gathered = plain = summed = 0
    for piece in inventory.pieces:
        padded, in_block = padded_elements(piece, size), LAYER in piece.name
        if len(piece.shape) < 2:
            summed += 2 * piece.times * padded * SUMMED * piece.trained
            continue
        passes = 2 if in_block else 1
        received = gathered_nbytes(wanted, piece) if in_block or piece.codes else padded * item
        gathered += passes * piece.times * received
        plain += passes * piece.times * padded * BF16
        summed += times * piece.times * padded * SUMMED * piece.trained
    sent = [nbytes * wanted.accumulate * (size - 1) // size for nbytes in (gathered, plain, summed)]
    return Traffic(*sent)
