"""Text from tokens, as they come: no half characters, and nothing that a stop string may take back.

A token can be a part of a character, so text is shown when it decodes to whole ones. A token's
text can depend on its neighbour (a leading space that a decoder drops at the start of a text), so
it is decoded after the tokens before it, and their text is taken off.
"""

from collections.abc import Sequence
from typing import Any

HALF = "\N{REPLACEMENT CHARACTER}"  # what a part of a character decodes to
CONTEXT = 4  # tokens before the first that are decoded with it


class Stream:
    """The text of one reply."""

    def __init__(self, tokenizer: Any, before: Sequence[int], stops: Sequence[str] = ()) -> None:
        self._tokenizer, self._context = tokenizer, list(before)[-CONTEXT:]
        self._stops = tuple(stops)
        self._whole = ""  # text that ends with a whole character
        self._pending: list[int] = []  # tokens after it
        self._shown = 0
        self.ids: list[int] = []
        self.text = ""
        self.stopped = False  # by a stop string; the text ends before it

    def push(self, token: int) -> str:
        """Add a token; the text that is now sure."""
        self.ids.append(token)
        self._pending.append(token)
        self.text = self._whole + text_after(self._tokenizer, self._context, self._pending)
        if not self.text.endswith(HALF):  # so that each token is decoded once, not with all after
            self._whole, self._context = self.text, [*self._context, *self._pending][-CONTEXT:]
            self._pending = []
        found = [at for stop in self._stops if (at := self.text.find(stop)) >= 0]
        if found:
            self.text, self.stopped = self.text[: min(found)], True
            return self._upto(len(self.text))
        return self._upto(self._sure())

    def finish(self) -> str:
        """What was held back, now that nothing follows; half a character is dropped."""
        self.text = self.text.rstrip(HALF)
        return self._upto(len(self.text))

    def _sure(self) -> int:
        """Where the text ends without half a character and what may begin a stop string."""
        text = self.text.rstrip(HALF)
        begun = [n for s in self._stops for n in range(1, len(s)) if text.endswith(s[:n])]
        return len(text) - max(begun, default=0)

    def _upto(self, end: int) -> str:
        new = self.text[self._shown : end]
        self._shown = max(self._shown, end)
        return new


def text_after(tokenizer: Any, before: Sequence[int], ids: Sequence[int]) -> str:
    """The text of tokens that stand after others."""
    known = _decode(tokenizer, before)
    return _decode(tokenizer, [*before, *ids])[len(known) :]


def _decode(tokenizer: Any, ids: Sequence[int]) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))
