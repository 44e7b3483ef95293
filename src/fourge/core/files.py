"""Files that are written whole or not at all, and read without filling the page cache.

Writing goes to a hidden sibling that is renamed into place at the end, so an interrupted or
failed write leaves nothing under the final name, and nothing that existed is touched before
the new thing is complete.

Reading a checkpoint through a mapping leaves it in the page cache, which on a machine with one
pool of memory is memory the GPU driver cannot get (it does not wait for reclaim). ``read_at``
reads with ``pread`` into memory the caller owns; ``release`` tells the kernel to drop the rest.
"""

import errno
import mmap
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fourge.core.errors import FormatError, OutputError

Buffer = bytearray | mmap.mmap
Stamp = tuple[int, int, int]
PIECE = 8 << 20  # bytes per read call
LARGE = 1 << 16
_NOT_HERE = (  # the path is at fault; EEXIST is of a parent that is a file
    errno.EACCES, errno.EEXIST, errno.EFBIG, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EPERM,
    errno.EROFS,
)  # fmt: skip


@contextmanager
def whole_file(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A temporary path beside ``path`` that becomes ``path`` if the block succeeds.

    Raises:
        OutputError: ``path`` exists and ``overwrite`` is false, or the disk is full.
    """
    with _whole(path, overwrite=overwrite, folder=False) as temporary:
        yield temporary


@contextmanager
def whole_folder(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Like ``whole_file``, for a folder: the block fills it, and then it takes its name."""
    with _whole(path, overwrite=overwrite, folder=True) as temporary:
        temporary.mkdir()
        yield temporary


@contextmanager
def _whole(path: Path, *, overwrite: bool, folder: bool) -> Iterator[Path]:
    refuse_existing(path, overwrite=overwrite)
    if path.is_dir() and not folder:
        raise OutputError(f"{path} is a folder.", why="a file is to be written under that name")
    path = path.resolve()  # what lies behind a link is what is replaced
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            _flush(temporary)
            _replace(temporary, path)
        finally:
            _remove(temporary)


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Raise before any work is done if the result could not be put in place."""
    if path.name in ("", ".."):
        raise OutputError(f"{path} is not a name for an output.", fix="give a new path")
    with write_errors(path):
        exists = path.exists()
    if exists and not overwrite:
        raise OutputError(
            f"{path} exists.",
            why="an output is never overwritten unless that is asked for",
            fix="choose another path, or pass --overwrite",
        )


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Say a failed write in the user's terms."""
    try:
        yield
    except OSError as error:
        # numpy says a full disk in words, without a number.
        if error.errno in (errno.ENOSPC, errno.EDQUOT) or "free space" in str(error):
            raise OutputError(
                f"{path} could not be written: the disk is full.",
                why="nothing was left behind under that name",
                fix=f"free some space under {path.parent}, or write elsewhere",
            ) from error
        if error.errno in _NOT_HERE:
            raise OutputError(
                f"{path} could not be written: {error.strerror}.",
                fix="choose a folder that you may write to",
            ) from error
        raise


def _flush(path: Path) -> None:
    """Force what was written to the disk, so that the rename cannot outrun the data."""
    for each in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if each.is_file():
            descriptor = os.open(each, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _replace(temporary: Path, path: Path) -> None:
    if not path.is_dir():
        temporary.replace(path)
        return
    # A folder cannot be renamed over another: the old one steps aside first.
    aside = path.with_name(f".{path.name}.{os.getpid()}.old")
    path.replace(aside)
    try:
        temporary.replace(path)
    except OSError:
        aside.replace(path)
        raise
    _remove(aside)


def _remove(path: Path) -> None:
    with suppress(FileNotFoundError):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


class ReadFile:
    """A file read by position, and dropped from the page cache as it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):  # a pipe would wait, a folder fails later
                raise FormatError(f"{path} is not a file.")
            self.nbytes = status.st_size
            self._descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise FormatError(f"{path} could not be read: {error.strerror}.") from error

    def __del__(self) -> None:
        descriptor = getattr(self, "_descriptor", None)
        if descriptor is not None:
            os.close(descriptor)

    def read_at(self, start: int, nbytes: int) -> Buffer:
        """Exactly these bytes, in a writable buffer.

        Raises:
            FormatError: the file ends before that.
        """
        if start < 0 or nbytes < 0 or start + nbytes > self.nbytes:
            raise FormatError(
                f"{self.path} is cut short or damaged.",
                why=f"bytes {start} to {start + nbytes} are asked for; it has {self.nbytes}",
                fix="fetch or export the file again",
            )
        # A large buffer is a mapping of its own: given back whole, it leaves no hole in the heap
        # between tensors that stay (measured: 241 MB for a model of 210 MB otherwise).
        data: Buffer = mmap.mmap(-1, nbytes) if nbytes >= LARGE else bytearray(nbytes)
        view = memoryview(data)
        done = 0
        while done < nbytes:
            try:
                count = os.preadv(self._descriptor, [view[done : done + PIECE]], start + done)
            except OSError as error:
                raise FormatError(f"{self.path} could not be read: {error.strerror}.") from error
            if count == 0:
                raise FormatError(f"{self.path} became shorter while it was being read.")
            done += count
        self.release(start, nbytes)
        return data

    def release(self, start: int = 0, nbytes: int = 0) -> None:
        """Drop a range (0: to the end) from the page cache. No privilege is needed."""
        os.posix_fadvise(self._descriptor, start, nbytes, os.POSIX_FADV_DONTNEED)


def user_cache() -> Path:
    """The user's cache folder, by the XDG rule: what is in it can be made again."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fourge"


def stamp_of(path: Path) -> Stamp:
    """Differs after a file was written or replaced: for what is remembered about its content."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns
