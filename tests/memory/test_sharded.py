import pytest

from fourge.memory.inventory import take_inventory
from fourge.memory.sharded import part, rows_each, share_of
from tests.memory.test_traffic import ENDS, VECTORS, wanted


def test_a_rank_keeps_its_share_of_what_stays() -> None:
    alone, of_four = wanted(1, master="bf16+8"), wanted(4, master="bf16+8")
    inventory = take_inventory(alone)
    share = share_of(of_four, take_inventory(of_four))
    vectors = 2 * VECTORS
    assert share.master - inventory.buffers == pytest.approx(
        (inventory.total("master") - vectors) / 4 + vectors, rel=1e-6
    )
    assert share.residual == pytest.approx(
        (inventory.total("residual") - VECTORS) / 4 + VECTORS, rel=1e-6
    )
    assert share.ends == ENDS * 2


def test_gloo_holds_a_copy_of_what_it_sums() -> None:
    here, there = wanted(2), wanted(2, device="cuda")
    gloo, nccl = (share_of(each, take_inventory(each)) for each in (here, there))
    assert gloo.block_sum == 2 * nccl.block_sum
    assert gloo.ends_sum - nccl.ends_sum == 4 * ENDS


@pytest.mark.parametrize(("size", "rows"), [(2, 150), (4, 75), (7, 43)])
def test_a_matrix_is_cut_by_rows_and_a_vector_is_not(size: int, rows: int) -> None:
    pieces = take_inventory(wanted(1)).pieces
    embedding = next(piece for piece in pieces if piece.shape == (300, 64))
    vector = next(piece for piece in pieces if len(piece.shape) == 1)
    assert rows_each(embedding, size) == (rows, 300)
    assert part(embedding, 300 * 10, size) == rows * 10
    assert part(vector, 10, size) == 10
