"""Reading a binary header from front to back, with every length checked against the file.

A file that was cut or damaged may claim any length. Nothing here allocates more than the file
holds, and nothing loops longer than it has bytes.
"""

import struct
from typing import NoReturn

from fourge.core.errors import FormatError
from fourge.core.files import ReadFile

WINDOW = 1 << 16  # bytes fetched at a time; headers are a run of small fields


class Cursor:
    """A position in a file that only moves forward."""

    def __init__(self, file: ReadFile) -> None:
        self.file = file
        self.position = 0
        self._window = b""
        self._start = 0

    @property
    def left(self) -> int:
        return self.file.nbytes - self.position

    def take(self, nbytes: int) -> bytes:
        """The next bytes.

        Raises:
            FormatError: fewer are left.
        """
        if nbytes < 0 or nbytes > self.left:
            self.fail(f"{nbytes} more bytes are announced and {self.left} are left")
        offset = self.position - self._start
        if offset + nbytes > len(self._window):
            want = min(max(nbytes, WINDOW), self.left)
            self._window = bytes(self.file.read_at(self.position, want))
            self._start, offset = self.position, 0
        self.position += nbytes
        return self._window[offset : offset + nbytes]

    def skip(self, nbytes: int) -> int:
        """Step over the next bytes and return where they began."""
        if nbytes < 0 or nbytes > self.left:
            self.fail(f"{nbytes} more bytes are announced and {self.left} are left")
        start = self.position
        self.position += nbytes
        return start

    def unpack(self, code: str) -> int | float:
        """One little-endian number, by its ``struct`` code."""
        (value,) = struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))
        return value  # type: ignore[no-any-return]

    def uint(self, nbytes: int) -> int:
        """An unsigned little-endian number of 1 to 8 bytes."""
        return int.from_bytes(self.take(nbytes), "little")

    def leb128(self) -> int:
        """An unsigned number in 7-bit groups, lowest first: at most 64 bits."""
        value, shift = 0, 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if value >> 64 or (byte & 0x80 and shift > 63):
                self.fail("a variable-length number does not end within 64 bits")
            if not byte & 0x80:
                return value

    def text(self, nbytes: int) -> str:
        """UTF-8 of that many bytes."""
        try:
            return self.take(nbytes).decode()
        except UnicodeDecodeError:
            self.fail("a name is not valid UTF-8")

    def fail(self, why: str) -> NoReturn:
        """Raise for what was found here."""
        raise FormatError(
            f"{self.file.path} is cut short or damaged.",
            why=f"at byte {self.position}: {why}",
            fix="fetch or export the file again",
        )
