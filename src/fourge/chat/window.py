"""Chats without end: what is forgotten when a conversation outgrows its window.

Whole exchanges go, oldest first; the system's text and the last question stay. The text that is
left is a conversation like any other and is fed again, so every position is one that the model
was trained on, and answers are what the model would give to that shorter conversation, exactly.
The first tokens of a text, on which much attention rests whatever they say (the "sinks"), are the
template's own and the system's, and are always there.

The other way, to cut keys and values out of the middle of the cache, saves the feeding but leaves
keys that were computed from tokens which are gone; nothing can be compared with that.

Feeding again costs as many tokens as are left, so it is done seldom: once the window is full, half
of it is freed.
"""

from collections.abc import Callable, Sequence

from fourge.data.records import Message


def remembered(
    messages: Sequence[Message], tokens: Callable[[Sequence[Message]], int], window: int, room: int
) -> list[Message]:
    """The messages to keep, so that they and a reply of ``room`` tokens fit into the window."""
    kept = list(messages)
    if tokens(kept) + min(room, window // 2) <= window:
        return kept
    while tokens(kept) > window // 2 and (oldest := _first_exchange(kept)):
        del kept[oldest]
    return kept


def _first_exchange(messages: Sequence[Message]) -> slice | None:
    """From the first message that is not the system's to the next of the user's; None if last."""
    start = next((n for n, m in enumerate(messages) if m.role != "system"), len(messages))
    after = range(start + 1, len(messages))
    end = next((n for n in after if messages[n].role == "user"), None)
    return None if end is None else slice(start, end)
