import pytest

from fourge.core.units import size


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (28 << 30, "28 GiB"),
     (5 << 40, "5 TiB"), (4000 << 40, "4,000 TiB")],
)  # fmt: skip
def test_sizes_read_in_binary_units(nbytes: int, text: str) -> None:
    assert size(nbytes) == text
