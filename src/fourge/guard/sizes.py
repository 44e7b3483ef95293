"""Sizes of memory as people write them: ``108GiB``, ``512 MiB``, ``8G``.

A binary unit is required: a bare number could be bytes or gigabytes, and a guard that guessed
wrong would be no guard. ``8G`` means 8 GiB, as it does to ``systemd``, ``docker`` and ``ulimit``;
``GB`` is refused, because half of its readers mean 1000.
"""

import re

_POWER = {"K": 10, "M": 20, "G": 30, "T": 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT])(?:iB)?")


def parse_size(text: str) -> int:
    """Bytes.

    Raises:
        ValueError: this is no size; the message says what one looks like.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a size; write it as 8GiB, 512MiB or 1.5G")
    nbytes = int(float(found[1]) * 2 ** _POWER[found[2]])
    if nbytes == 0:
        raise ValueError(f"{text!r} is nothing; a size is more than that")
    return nbytes


def gib(nbytes: int) -> str:
    """``nbytes`` with two decimals, always in GiB: lines of a log compare at a glance."""
    return f"{nbytes / 2**30:.2f} GiB"
