"""What one of N ranks holds: the parts of a plan that FSDP2 cuts, gathers and sums.

                       stays                              passes
    matrices           ceil(rows / N) of master,          a block's codes, gathered: twice, as
                       residual and moments               torch sends and as it is used
    vectors            whole                              a block's gradients, in the compute
    embedding, head    the same share                     dtype and, being summed, in float32

Every rank loads the whole model and keeps its share of it. Embedding and head stay gathered for
the length of a step, and the head's gradient for that of the backward pass, at whose end both are
summed. A block's gradients are summed together; what is sent of one block is let go of when the
next is (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, post_backward).

NCCL gives every rank its part of a sum. gloo, on CPUs, has no such operation: torch copies what is
to be summed, sums all of the copy on every rank, and takes the part out of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from fourge.memory.inventory import LAYER, Inventory, Piece
from fourge.memory.wanted import Wanted
from fourge.train.prepare import storage_dtype

SUMMED = 4  # bytes: gradients are summed in float32


def sums_whole(wanted: Wanted) -> bool:
    """Whether a rank is given the whole of a sum, of which it wants a part."""
    return wanted.device == "cpu"


@dataclass(frozen=True, slots=True)
class Share:
    """The bytes of one rank, by what they are."""

    master: int
    residual: int
    moments: int
    ends: int  # embedding and head, gathered
    block: int  # what is gathered of one block
    block_gradients: int  # of one block, whole, in the compute dtype
    block_sum: int  # the same in float32, on its way
    head_gradient: int
    ends_sum: int  # at the end: what is sent of embedding and head, and an embedding's own gradient
    gradients: int  # of everything, this rank's part, in the master's dtype


def rows_each(piece: Piece, size: int) -> tuple[int, int]:
    """The rows of a rank, padded, and all of them; a vector is one row, and whole."""
    rows = piece.shape[0] if len(piece.shape) > 1 else 1
    return (-(-rows // size) if len(piece.shape) > 1 else 1), rows


def part(piece: Piece, nbytes: int, size: int) -> int:
    """A rank's share of so many bytes of a parameter."""
    each, rows = rows_each(piece, size)
    return nbytes * each // rows


def share_of(wanted: Wanted, inventory: Inventory) -> Share:
    """What one rank of the wanted world holds."""
    size, item = wanted.world_size, storage_dtype(wanted.master).itemsize
    compute = wanted.compute.itemsize
    blocks = [piece for piece in inventory.pieces if LAYER in piece.name]
    ends = [p for p in inventory.pieces if LAYER not in p.name and len(p.shape) > 1]
    in_block = [piece for piece in blocks if piece.trained]

    def all_of(what: str) -> int:
        return sum(p.times * part(p, int(getattr(p, what)), size) for p in inventory.pieces)

    trained_ends = sum(padded_elements(piece, size) for piece in ends if piece.trained)
    head = max((piece.elements for piece in ends if piece.trained), default=0)
    own = trained_ends - head  # an embedding that is not the head has a gradient of its own
    summed = SUMMED * (2 if sums_whole(wanted) else 1)
    return Share(
        master=all_of("master") + inventory.buffers,
        residual=all_of("residual"),
        moments=all_of("moments"),
        ends=sum(padded_elements(piece, size) for piece in ends) * item,
        block=sum(gathered_nbytes(wanted, piece) for piece in _one_each(blocks)),
        block_gradients=sum(piece.elements for piece in in_block) * compute,
        block_sum=sum(padded_elements(piece, size) for piece in in_block) * summed,
        head_gradient=head * compute,
        ends_sum=trained_ends * summed + own * compute + trained_ends * SUMMED // size,
        gradients=all_of("gradient"),
    )


def _one_each(blocks: list[Piece]) -> Iterator[Piece]:
    """The tensors of one block; trained and frozen ones have the same names."""
    seen = {piece.name: piece for piece in blocks}
    yield from seen.values()


def padded_elements(piece: Piece, size: int) -> int:
    """Elements, with the rows that torch adds so that every rank has as many."""
    each, rows = rows_each(piece, size)
    return piece.elements // rows * each * size if len(piece.shape) > 1 else piece.elements


def gathered_nbytes(wanted: Wanted, piece: Piece) -> int:
    """Bytes of a parameter as a rank receives it, whole."""
    if len(piece.shape) < 2:
        return 0
    if piece.codes:
        return padded_elements(piece, wanted.world_size) * piece.codes // piece.elements
    dense = wanted.compute if wanted.scheme != "none" else storage_dtype(wanted.master)
    return padded_elements(piece, wanted.world_size) * dense.itemsize
