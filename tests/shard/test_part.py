from hypothesis import given
from hypothesis import strategies as st

from fourge.shard.part import rows_of


@given(st.integers(1, 200), st.integers(1, 9))
def test_the_ranks_rows_are_those_of_torch_chunk(rows: int, size: int) -> None:
    import torch

    chunks = [len(chunk) for chunk in torch.arange(rows).chunk(size)]
    mine = [len(range(rows)[rows_of(rows, rank, size)]) for rank in range(size)]
    assert mine == chunks + [0] * (size - len(chunks))
    assert (
        len({part.stop - part.start for part in (rows_of(rows, r, size) for r in range(size))}) == 1
    )
