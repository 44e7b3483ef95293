"""Numbers as people read them."""


def size(nbytes: int) -> str:
    """``nbytes`` in the largest binary unit that leaves at least 1, with three digits."""
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:,.3g} TiB" if value < 1000 else f"{value:,.0f} TiB"
