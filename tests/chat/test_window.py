from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from fourge.chat.window import remembered
from fourge.data.records import Message


def length(messages: Sequence[Message]) -> int:
    return sum(len(message.content) for message in messages)


def conversation(sizes: list[int], system: int) -> list[Message]:
    roles = ["user", "assistant"]
    said = [Message(roles[n % 2], "x" * size) for n, size in enumerate(sizes)]
    return [*([Message("system", "s" * system)] if system else []), *said]


@given(
    exchanges=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 30)), max_size=8),
    last=st.integers(1, 30),
    system=st.integers(0, 10),
    window=st.integers(16, 200),
    room=st.integers(1, 300),
)
def test_what_is_kept_is_the_system_and_the_end_and_it_fits(
    exchanges: list[tuple[int, int]], last: int, system: int, window: int, room: int
) -> None:
    messages = conversation([*(n for pair in exchanges for n in pair), last], system)
    kept = remembered(messages, length, window, room)
    first = 1 if system else 0
    assert kept[:first] == messages[:first]
    count = len(kept) - first
    assert kept[first:] == messages[len(messages) - count :]
    assert count % 2 == 1
    if length(messages) + min(room, window // 2) <= window:
        assert kept == messages
    else:
        assert length(kept) <= window // 2 or count == 1


def test_no_more_is_forgotten_than_frees_half_of_the_window() -> None:
    messages = conversation([10, 10, 10, 10, 10, 10, 10], 0)
    assert remembered(messages, length, 70, 20) == messages[4:]
    assert remembered(messages, length, 90, 20) == messages
    assert remembered(messages, length, 89, 20) == messages[4:]
