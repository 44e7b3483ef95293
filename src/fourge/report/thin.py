"""A long curve with fewer points that looks the same: the extremes of each bucket stay.

Keeping every n-th point would lose the spike that the reader is looking for. Here the points are
cut into equal buckets and of each the lowest and the highest stay, in their order, with the very
first and the very last: no extreme of the curve is lost, whatever its length.
"""

from collections.abc import Sequence

BUCKETS = 400


def thinned(y: Sequence[float], buckets: int = BUCKETS) -> list[int]:
    """The indices to draw; all of them if they are few."""
    count = len(y)
    if count <= 2 * buckets + 2:
        return list(range(count))
    kept = {0, count - 1}
    for bucket in range(buckets):
        rows = range(bucket * count // buckets, (bucket + 1) * count // buckets)
        kept.add(min(rows, key=y.__getitem__))
        kept.add(max(rows, key=y.__getitem__))
    return sorted(kept)


def spread(count: int, most: int) -> list[int]:
    """At most ``most`` indices, evenly over all, first and last included."""
    if count <= most:
        return list(range(count))
    return [round(at * (count - 1) / (most - 1)) for at in range(most)]
