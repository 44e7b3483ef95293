"""A long curve with fewer points that looks the same: the extremes of each bucket stay.

Keeping every n-th point would lose the spike that the reader is looking for. Here the points are
cut into equal buckets and of each the lowest and the highest stay, in their order, with the very
first and the very last: no extreme of the curve is lost, whatever its length. What such a curve
shows is the band in which it moves; the means of the buckets show where it goes.
"""

from collections.abc import Sequence
from statistics import fmean as mean

BUCKETS = 400


def thinned(y: Sequence[float], buckets: int = BUCKETS) -> list[int]:
    """The indices to draw; all of them if they are few."""
    if not is_long(y, buckets):
        return list(range(len(y)))
    kept = {0, len(y) - 1}
    for rows in _cut(len(y), buckets):
        kept.add(min(rows, key=y.__getitem__))
        kept.add(max(rows, key=y.__getitem__))
    return sorted(kept)


def is_long(y: Sequence[float], buckets: int = BUCKETS) -> bool:
    """Whether thinning leaves anything out."""
    return len(y) > 2 * buckets + 2


def means(
    x: Sequence[float], y: Sequence[float], buckets: int = BUCKETS
) -> tuple[list[float], list[float]]:
    """Of each bucket, in both directions."""
    cut = _cut(len(y), min(buckets, len(y)))
    return [mean(x[at] for at in rows) for rows in cut], [
        mean(y[at] for at in rows) for rows in cut
    ]


def _cut(count: int, buckets: int) -> list[range]:
    return [range(at * count // buckets, (at + 1) * count // buckets) for at in range(buckets)]


def spread(count: int, most: int) -> list[int]:
    """At most ``most`` indices, evenly over all, first and last included."""
    if count <= most:
        return list(range(count))
    return [round(at * (count - 1) / (most - 1)) for at in range(most)]
