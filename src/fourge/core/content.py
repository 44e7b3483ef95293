"""What is in files, as one digest: of data, of weights on disk, of our own code.

A folder counts with the names below it and what each file holds, so neither its own name nor the
order of writing matters. Files are read without filling the page cache.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from fourge.core.files import PIECE, ReadFile

NOTE = "note.md"  # says why a folder was put aside; it came after what the digest is of


def digest_of_path(path: Path) -> str:
    """The digest of a file, or of all files under a folder.

    Raises:
        FormatError: there is nothing, or it cannot be read.
    """
    files = [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path]
    return _digest((p for p in files if p.name != NOTE), path)


def digest_of_code() -> str:
    """The digest of this package's source: which fourge made something."""
    package = Path(__file__).parents[1]
    return _digest(package.rglob("*.py"), package)


def _digest(files: Iterable[Path], top: Path) -> str:
    whole = hashlib.blake2b(digest_size=16)
    for path in sorted(files):
        own, file = hashlib.blake2b(digest_size=16), ReadFile(path)
        for start in range(0, file.nbytes, PIECE):
            own.update(file.read_at(start, min(PIECE, file.nbytes - start)))
        whole.update(path.relative_to(top).as_posix().encode() + b"\0" + own.digest())
    return whole.hexdigest()
