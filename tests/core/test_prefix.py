from hypothesis import given
from hypothesis import strategies as st

from fourge.core.prefix import common_prefix


@given(one=st.lists(st.integers(0, 2)), other=st.lists(st.integers(0, 2)))
def test_the_common_prefix_is_common_and_cannot_be_longer(one: list[int], other: list[int]) -> None:
    length = common_prefix(one, other)
    assert one[:length] == other[:length]
    assert one[length : length + 1] != other[length : length + 1] or length == len(one) == len(
        other
    )
