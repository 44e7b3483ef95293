import pytest

from fourge.core.errors import ConfigError
from fourge.core.units import parse_size, size


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (28 << 30, "28 GiB"),
     (5 << 40, "5 TiB"), (4000 << 40, "4,000 TiB")],
)  # fmt: skip
def test_sizes_read_in_binary_units(nbytes: int, text: str) -> None:
    assert size(nbytes) == text


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("512MiB", 512 << 20), ("100GiB", 100 << 30), ("1.5 TiB", 3 << 39), ("0.5GiB", 1 << 29)],
)
def test_a_size_is_a_number_with_its_unit(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize("text", ["", "100", "100GB", "GiB", "-1GiB", "0GiB", "1e3MiB", "1 GiB "])
def test_anything_else_is_no_size(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a size"):
        parse_size(text)
