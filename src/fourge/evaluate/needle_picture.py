"""What ``needle`` found, drawn: recall by depth and length, and memory by tokens fed."""

from typing import Any

from fourge.evaluate.needle import Recall

MIB = float(1 << 20)
FOUND, LOST = "#2a9d5c", "#c8553d"


def draw(figure: Any, found: Recall, predicted: int, title: str) -> None:
    """Draw on an empty figure; ``predicted`` is what a token adds to the cache, in bytes."""
    squares, memory = figure.subplots(1, 2)
    figure.suptitle(f"{title}: {found.share():.0%} found")
    _draw_recall(squares, found)
    _draw_memory(memory, found, predicted)


def _draw_recall(axes: Any, found: Recall) -> None:
    lengths = sorted({each.length for each in found.asked})
    depths = sorted({each.depth for each in found.asked})
    for each in found.asked:
        at = (lengths.index(each.length), depths.index(each.depth))
        axes.bar(at[0], 0.9, bottom=at[1] - 0.45, width=0.9, color=FOUND if each.found else LOST)
        axes.text(*at, "found" if each.found else "lost", ha="center", va="center", color="white")
    axes.set_xticks(range(len(lengths)), [f"{length:,}" for length in lengths])
    axes.set_yticks(range(len(depths)), [f"{depth:.0%}" for depth in depths])
    axes.set_ylim(len(depths) - 0.4, -0.6)  # the beginning of the text on top
    axes.set_xlabel("tokens")
    axes.set_ylabel("depth of the secret")


def _draw_memory(axes: Any, found: Recall, predicted: int) -> None:
    tokens = [each.tokens for each in found.held]
    first = found.held[0]
    grown = [(each.resident - first.resident) / MIB for each in found.held]
    line = [(each.tokens - first.tokens) * predicted / MIB for each in found.held]
    axes.plot(tokens, line, color="black", linestyle="--", label="predicted")
    axes.plot(tokens, grown, "o", color="#33638d", label="measured")
    axes.set_xlabel("tokens fed")
    axes.set_ylabel("MiB more than after the first chunk")
    axes.legend()
