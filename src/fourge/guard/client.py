"""The trainer's end of the line to its guard: say "alive", hear "careful", notice its death.

The guard hands its command one end of a socket pair, and names it in the environment as
``FOURGE_GUARD_FD=descriptor:inode``. The inode is checked: a grandchild inherits the variable, but
under that number it may have an entirely different file. Every byte sent means "alive", the byte
received means "little is left: drop caches and save", and the end of the stream means that the
guard is gone. Nothing here blocks, and nothing here raises.
"""

import contextlib
import os

VARIABLE = "FOURGE_GUARD_FD"


class Beat:
    """The line to the guard, if there is one; without one all is quiet."""

    def __init__(self) -> None:
        self._line = _inherited()
        self.lost = False  # the guard was there and is gone: save and leave
        if self._line is not None:
            os.set_blocking(self._line, False)

    def beat(self) -> None:
        """Say "alive". A full line or a dead guard is not the sender's trouble."""
        if self._line is not None:
            with contextlib.suppress(OSError):
                os.write(self._line, b".")

    def warned(self) -> bool:
        """Whether a warning came since the last call."""
        if self._line is None:
            return False
        try:
            heard = os.read(self._line, 64)
        except BlockingIOError:
            return False
        except OSError:
            heard = b""
        self.lost = self.lost or not heard
        return bool(heard)


def guarded() -> bool:
    """Whether this process was started by a guard."""
    return _inherited() is not None


def _inherited() -> int | None:
    try:
        descriptor, inode = map(int, os.environ.get(VARIABLE, "").split(":"))
        return descriptor if os.fstat(descriptor).st_ino == inode else None
    except (ValueError, OSError):
        return None
