from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourge.core.cursor import Cursor
from fourge.core.errors import FormatError
from fourge.core.files import ReadFile
from fourge.formats.torchsharp_dat import uleb128


def cursor(folder: Path, data: bytes) -> Cursor:
    (folder / "f").write_bytes(data)
    return Cursor(ReadFile(folder / "f"))


def test_reads_follow_each_other_across_windows(tmp_path: Path) -> None:
    data = bytes(range(256)) * 1024
    reader = cursor(tmp_path, data)
    taken = b"".join(reader.take(n) for n in (1, 70_000, 3, 65_536, 10))
    assert taken == data[: len(taken)]
    assert reader.skip(5) == len(taken)
    assert reader.take(2) == data[len(taken) + 5 : len(taken) + 7]
    assert reader.left == len(data) - len(taken) - 7


def test_taking_more_than_is_left_is_refused(tmp_path: Path) -> None:
    reader = cursor(tmp_path, b"abc")
    for ask in (reader.take, reader.skip):
        with pytest.raises(FormatError, match="3 are left"):
            ask(1 << 62)


@given(value=st.integers(0, (1 << 64) - 1))
def test_leb128_is_read_as_it_is_written(
    tmp_path_factory: pytest.TempPathFactory, value: int
) -> None:
    assert cursor(tmp_path_factory.getbasetemp(), uleb128(value)).leb128() == value


@pytest.mark.parametrize("data", [b"\x80" * 100, b"\xff" * 9 + b"\x02", b"\x80" * 10 + b"\x01"])
def test_leb128_that_does_not_end_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(FormatError, match="does not end"):
        cursor(tmp_path, data).leb128()


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="UTF-8"):
        cursor(tmp_path, b"\xff\xfe").text(2)
