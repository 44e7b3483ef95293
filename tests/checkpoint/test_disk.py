import ctypes
import errno
import shutil
from pathlib import Path

import pytest

from fourge.checkpoint.disk import exchange, put_in_place, remove_folder


def folder(path: Path, text: str) -> Path:
    path.mkdir()
    (path / "file").write_text(text)
    return path


def test_two_folders_trade_names(tmp_path: Path) -> None:
    one, other = folder(tmp_path / "one", "1"), folder(tmp_path / "other", "2")
    if not exchange(one, other):
        pytest.skip("this file system cannot exchange names")
    assert (one / "file").read_text() == "2"
    assert (other / "file").read_text() == "1"


def test_what_is_not_there_cannot_trade_names(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        exchange(tmp_path / "one", tmp_path / "other")


class Refuses:
    """A C library whose call fails."""

    def __init__(self, code: int) -> None:
        self.code = code

    def renameat2(self, *arguments: object) -> int:
        return -1


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS, errno.EXDEV, errno.EOPNOTSUPP, 0])
def test_a_file_system_without_exchange_is_served_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    library = Refuses(code) if code else object()
    monkeypatch.setattr(ctypes, "CDLL", lambda *arguments, **options: library)
    monkeypatch.setattr(ctypes, "get_errno", lambda: code)
    fresh, target = folder(tmp_path / "fresh", "new"), folder(tmp_path / "target", "old")
    put_in_place(fresh, target)
    assert (target / "file").read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_another_failure_is_not_taken_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *arguments, **options: Refuses(errno.EIO))
    monkeypatch.setattr(ctypes, "get_errno", lambda: errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        put_in_place(folder(tmp_path / "fresh", "new"), folder(tmp_path / "target", "old"))
    assert (tmp_path / "target" / "file").read_text() == "old"


def test_a_folder_loses_its_name_before_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder(tmp_path / "step-000001", "x")
    seen: list[bool] = []
    monkeypatch.setattr(shutil, "rmtree", lambda gone: seen.append(path.exists()))
    remove_folder(path)
    assert seen == [False]


def test_removing_a_link_keeps_what_it_leads_to(tmp_path: Path) -> None:
    real = folder(tmp_path / "real", "x")
    (tmp_path / "link").symlink_to(real)
    remove_folder(tmp_path / "link")
    assert list(tmp_path.iterdir()) == [real]
    assert (real / "file").exists()
