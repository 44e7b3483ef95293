"""Numbers as people read and write them."""

import re

from fourge.core.errors import ConfigError

_UNITS = {"MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(MiB|GiB|TiB)", re.ASCII)


def size(nbytes: int) -> str:
    """``nbytes`` in the largest binary unit that leaves at least 1, with three digits."""
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:,.3g} TiB" if value < 1000 else f"{value:,.0f} TiB"


def parse_size(text: str) -> int:
    """Bytes, from a number with a binary unit: ``100GiB``, ``1.5 TiB``.

    Raises:
        ConfigError: it is not written so, or is nothing.
    """
    found = _SIZE.fullmatch(text)
    nbytes = int(float(found[1]) * _UNITS[found[2]]) if found else 0
    if not nbytes:
        raise ConfigError(
            f"{text!r} is not a size.", fix="write a number with its unit: 512MiB, 100GiB, 1.5TiB"
        )
    return nbytes
