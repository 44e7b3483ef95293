import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fourge.core.errors import DataError
from fourge.data.batch import MASKED, Batch, collate, whole_batch
from fourge.data.records import Example, Turn
from fourge.data.render import Rendered, Renderer
from tests.conftest import byte_tokenizer

PAD = 999


@st.composite
def rendered(draw: st.DrawFn) -> Rendered:
    token = draw(st.lists(st.integers(0, 50), min_size=2, max_size=8))
    marks = draw(st.lists(st.booleans(), min_size=len(token), max_size=len(token)))
    marks[draw(st.integers(1, len(token) - 1))] = True
    return Rendered(tuple(token), tuple(marks), f"file:{draw(st.integers(1, 9))}")


@given(st.lists(rendered(), min_size=1, max_size=4))
def test_a_target_is_the_next_token_if_that_is_to_be_learned(examples: list[Rendered]) -> None:
    rows = [(0, n) for n in range(len(examples))]
    batch = collate(examples, PAD, rows)
    assert batch.token_BT.shape[1] == max(len(each.token) for each in examples)
    for b, each in enumerate(examples):
        count = len(each.token)
        assert batch.token_BT[b].tolist()[:count] == list(each.token)
        assert set(batch.token_BT[b].tolist()[count:]) <= {PAD}
        assert batch.mask_BT[b].tolist() == [t < count for t in range(batch.token_BT.shape[1])]
        for t in range(batch.token_BT.shape[1]):
            taught = t + 1 < count and each.is_target[t + 1]
            assert batch.target_BT[b, t] == (each.token[t + 1] if taught else MASKED)
    assert batch.targets == sum(sum(each.is_target[1:]) for each in examples)
    assert batch.tokens == sum(len(each.token) for each in examples)
    assert batch.source == tuple(each.source for each in examples)
    assert batch.rows == tuple(rows)


def test_the_stop_token_is_the_target_of_the_answers_last_token() -> None:
    tokenizer = byte_tokenizer()
    example = Example((Turn("user", "q"), Turn("assistant", "yes")), "a:1")
    batch = collate([Renderer(tokenizer).render(example)], PAD, [(0, 0)])
    taught = batch.target_BT != MASKED
    assert tokenizer.decode(batch.target_BT[taught]) == "yes<|im_end|>"
    assert tokenizer.decode(batch.token_BT[taught]) == "\nyes"  # each is asked one earlier
    assert batch.target_BT[0, -1] == MASKED


def make(
    token: Tensor | None = None,
    target: Tensor | None = None,
    mask: Tensor | None = None,
    source: tuple[str, ...] = ("a:1", "a:2"),
    rows: tuple[tuple[int, int], ...] = ((0, 0), (0, 1)),
) -> Batch:
    return Batch(
        torch.zeros(2, 3, dtype=torch.int64) if token is None else token,
        torch.zeros(2, 3, dtype=torch.int64) if target is None else target,
        torch.ones(2, 3, dtype=torch.bool) if mask is None else mask,
        source,
        rows,
    )


def test_a_batch_that_is_not_what_it_says_cannot_be_made() -> None:
    assert make().targets == 6
    with pytest.raises(DataError, match="different shapes"):
        make(target=torch.zeros(2, 4, dtype=torch.int64))
    flat = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(DataError, match="shapes"):
        make(flat, flat, flat.bool())
    with pytest.raises(DataError, match="names 1 sources"):
        make(source=("a:1",))
    with pytest.raises(DataError, match="and 1 rows"):
        make(rows=((0, 0),))
    with pytest.raises(DataError, match="types"):
        make(token=torch.zeros(2, 3, dtype=torch.int32))
    with pytest.raises(DataError, match="elsewhere than on the right"):
        make(mask=torch.tensor([[True, True, False], [False, True, True]]))
    with pytest.raises(DataError, match="no target") as caught:
        make(target=torch.full((2, 3), MASKED))
    assert "a:1, a:2" in caught.value.why


def test_a_batch_of_nothing_is_refused() -> None:
    with pytest.raises(DataError, match="no target"):
        collate([], PAD, [])


def test_every_token_but_the_first_is_a_target() -> None:
    batch = whole_batch(torch.arange(12).view(2, 6))
    assert batch.targets == 10
    assert batch.target_BT[0].tolist() == [1, 2, 3, 4, 5, MASKED]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_parts_of_a_batch_are_its_rows_in_order(size: int) -> None:
    tokens = torch.arange(1, 41).view(4, 10)
    batch = whole_batch(tokens)
    parts = [batch.part(rank, size) for rank in range(size)]
    assert torch.equal(torch.cat([part.token_BT for part in parts]), tokens)
    assert [row for part in parts for row in part.rows] == list(batch.rows)
    assert sum(part.targets for part in parts) == batch.targets


def test_a_part_is_as_wide_as_its_own_longest_row() -> None:
    mask = torch.ones(2, 6, dtype=torch.bool)
    mask[1, 3:] = False
    target = torch.full((2, 6), MASKED)
    target[:, 0] = 5
    batch = Batch(torch.ones(2, 6, dtype=torch.int64), target, mask, ("a", "b"), ((0, 0), (0, 1)))
    assert batch.part(0, 2).token_BT.shape == (1, 6)
    assert batch.part(1, 2).token_BT.shape == (1, 3)
