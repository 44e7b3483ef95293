import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourge.guard.sizes import gib, parse_size


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("108GiB", 108 << 30), ("8G", 8 << 30), ("512MiB", 512 << 20), ("1.5 GiB", 3 << 29),
     ("64KiB", 64 << 10), ("2T", 2 << 40), (" 8GiB ", 8 << 30)],
)  # fmt: skip
def test_sizes_are_binary(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize(
    "text",
    ["", "8", "8GB", "GiB", "-8GiB", "8 gigs", "8gib", "1e3M", "8GiBs", "nan", "8  GiB", ".5G"],
)
def test_what_could_be_misread_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size; write it as 8GiB"):
        parse_size(text)


def test_nothing_is_no_size() -> None:
    with pytest.raises(ValueError, match="is nothing"):
        parse_size("0GiB")


@given(st.integers(1, 1 << 44))
def test_kibibytes_are_exact(kib: int) -> None:
    assert parse_size(f"{kib}K") == kib * 1024


def test_sizes_are_shown_in_gib() -> None:
    assert (gib(3 << 29), gib(-(1 << 20))) == ("1.50 GiB", "-0.00 GiB")
