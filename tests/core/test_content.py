from pathlib import Path

import pytest

from fourge.core import content
from fourge.core.content import digest_of_code, digest_of_path
from fourge.core.errors import FormatError


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_a_folder_is_what_is_in_it_and_not_its_name(tmp_path: Path) -> None:
    one = written(tmp_path / "one", a="1", sub__b="2")
    same = written(tmp_path / "same", sub__b="2", a="1")
    assert digest_of_path(one) == digest_of_path(same)
    for other in ({"a": "1", "sub__b": "3"}, {"a": "1", "b": "2"}, {"a": "12", "sub__b": ""}):
        name = "-".join(other.values()) + "-".join(other)
        assert digest_of_path(written(tmp_path / name, **other)) != digest_of_path(one)


def test_a_note_that_came_later_does_not_count(tmp_path: Path) -> None:
    folder = written(tmp_path / "x", a="1")
    before = digest_of_path(folder)
    (folder / content.NOTE).write_text("why it was put aside")
    assert digest_of_path(folder) == before


def test_a_file_is_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "PIECE", 4)
    one, other = tmp_path / "x", tmp_path / "y"
    one.write_bytes(b"123456789")
    before = digest_of_path(one)
    one.write_bytes(b"12345678X")
    assert digest_of_path(one) != before
    with pytest.raises(FormatError):
        digest_of_path(other)


def test_our_own_code_has_a_digest_that_changes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert digest_of_code() == digest_of_code()
    written(tmp_path, core__content="", a="")
    (tmp_path / "a.py").write_text("1")
    monkeypatch.setattr(content, "__file__", str(tmp_path / "core" / "content.py"))
    before = digest_of_code()
    (tmp_path / "a.py").write_text("2")
    assert digest_of_code() != before
