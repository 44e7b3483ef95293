import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fourge.core.errors import FormatError, OutputError
from fourge.core.files import ReadFile, whole_file, whole_folder


def test_a_file_appears_only_when_whole(tmp_path: Path) -> None:
    with whole_file(tmp_path / "a") as temporary:
        temporary.write_text("x")
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a").read_text() == "x"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_what_is_written_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bool] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append((tmp_path / "f").exists()))
    with whole_folder(tmp_path / "f") as temporary:
        (temporary / "one").write_text("x")
        (temporary / "two").write_text("y")
    assert synced == [False, False]


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "part").write_text("x")
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"), whole_folder(tmp_path / "f") as temporary:
        fill(temporary)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_write_leaves_nothing_under_the_name(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from fourge.core.files import whole_file\n"
        "with whole_file(Path(sys.argv[1])) as t:\n    t.write_text('half'); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "a")], check=False)
    assert not (tmp_path / "a").exists()


def test_an_existing_output_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with pytest.raises(OutputError, match="exists"), whole_file(tmp_path / "a"):
        pytest.fail("the block must not run")
    assert (tmp_path / "a").read_text() == "old"


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_overwrite_replaces_the_old_only_at_the_end(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "a"
    if kind == "file":
        target.write_text("old")
        with whole_file(target, overwrite=True) as temporary:
            temporary.write_text("new")
            assert target.read_text() == "old"
        assert target.read_text() == "new"
    else:
        target.mkdir()
        (target / "old").write_text("old")
        with whole_folder(target, overwrite=True) as temporary:
            (temporary / "new").write_text("new")
            assert (target / "old").exists()
        assert [p.name for p in target.iterdir()] == ["new"]
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_full_disk_is_said_in_the_users_words(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="disk is full"), whole_file(tmp_path / "a"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert list(tmp_path.iterdir()) == []


def test_reading_beyond_the_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    file = ReadFile(tmp_path / "a")
    assert bytes(file.read_at(1, 3)) == b"234"
    for start, nbytes in ((3, 3), (0, 1 << 60), (-1, 2)):
        with pytest.raises(FormatError, match="cut short"):
            file.read_at(start, nbytes)


def test_a_missing_file_is_said_by_name(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="nowhere"):
        ReadFile(tmp_path / "nowhere")


def test_what_was_read_does_not_stay_in_the_page_cache(tmp_path: Path) -> None:
    path = tmp_path / "big"
    path.write_bytes(os.urandom(8 << 20))
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)  # dirty pages cannot be dropped
    os.close(descriptor)
    path.read_bytes()
    before = _cached_bytes(path)
    file = ReadFile(path)
    file.read_at(0, 8 << 20)
    assert before > 7 << 20
    assert _cached_bytes(path) < 1 << 20


def _cached_bytes(path: Path) -> int:
    """How much of a file is in the page cache, by mincore."""
    import ctypes
    import mmap

    libc = ctypes.CDLL(None, use_errno=True)
    size = path.stat().st_size
    pages = -(-size // mmap.PAGESIZE)
    with path.open("rb") as file:
        mapping = mmap.mmap(file.fileno(), size, mmap.MAP_SHARED, mmap.PROT_READ)
        address = ctypes.c_void_p(_address(mapping, size))
        flags = (ctypes.c_ubyte * pages)()
        assert libc.mincore(address, ctypes.c_size_t(size), flags) == 0
        return sum(flag & 1 for flag in flags) * mmap.PAGESIZE


def _address(mapping: object, size: int) -> int:
    import numpy as np

    return int(np.frombuffer(mapping, np.uint8, size).ctypes.data)  # type: ignore[call-overload]


def test_a_link_to_a_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with whole_folder(tmp_path / "link", overwrite=True) as temporary:
        (temporary / "new").write_text("x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "new").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "real"]
