"""Folders that take a name, or lose it, with no moment in between at which half of one has it.

``rename`` cannot put a folder over one that is not empty. Linux can exchange two names in one
step (``renameat2`` with ``RENAME_EXCHANGE``); some network file systems cannot, and there the
old folder is set aside first, under a name from which it can be brought back (``.old``).
"""

import ctypes
import errno
import os
import shutil
from pathlib import Path

_HERE = -100  # AT_FDCWD: paths are relative to the current folder
_EXCHANGE = 2  # RENAME_EXCHANGE
_NOT_SUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV)


def put_in_place(fresh: Path, target: Path) -> None:
    """``fresh`` becomes ``target``, and what ``target`` was is removed."""
    old = fresh
    if not exchange(fresh, target):
        old = target.with_name(f".{target.name}.{os.getpid()}.old")
        target.replace(old)
        fresh.replace(target)
    sync(target.parent)  # the new one is there for good before the old one goes
    remove_folder(old)


def exchange(one: Path, other: Path) -> bool:
    """Let two paths trade names in one step; False where the file system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        return False
    if libc.renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NOT_SUPPORTED:
        return False
    raise OSError(code, os.strerror(code), str(other))


def remove_folder(path: Path) -> None:
    """Remove a folder, or the link to one; it loses its name before the first of its files."""
    gone = path.with_name(f".{path.name.lstrip('.')}.{os.getpid()}.partial")
    path.replace(gone)
    if gone.is_symlink():
        gone.unlink()
    else:
        shutil.rmtree(gone)


def sync(path: Path) -> None:
    """Force a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
