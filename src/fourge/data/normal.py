"""When two prompts are the same question: after width, case, spaces and punctuation are gone."""

import re
import unicodedata

_DROPPED = re.compile(r"[\W_]+")


def normal(text: str) -> str:
    """The form in which prompts are compared.

    Symbols go too, so "F#" and "F" are one; a text of nothing else stays as it is.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return _DROPPED.sub("", folded) or folded.strip()
