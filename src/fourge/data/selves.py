"""Which rows of a file teach a name, counted from what they say and not from what they are called.

A row is an identity row if its answer begins by saying who speaks ("I am ..."), or holds the name
that the file's answers give most often. Feelings are no names: "I am sorry" is not one.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from fourge.data.names import says
from fourge.data.shipped import any_of

_SELF = re.compile(
    rf"(?:{any_of('introduction_parts')}|\b(?:{any_of('introductions')})\s)"
    r"\s*(?P<name>(?:[^\s.!?,;\u3001\u3002]| (?=[^\s.])){1,30})",
    re.IGNORECASE,
)
_NO_NAME = re.compile(rf"(?:{any_of('no_names')})\b|{any_of('no_name_parts')}", re.IGNORECASE)
_BEGINNING = 40  # characters in which a self-introduction starts


def claimed_self(answer: str) -> str | None:
    """The name an answer begins by giving its speaker."""
    plain = unicodedata.normalize("NFKC", answer)
    found = _SELF.search(plain[: _BEGINNING + 30])
    if not found or found.start() > _BEGINNING:
        return None
    name = found["name"].strip()
    the = re.match(r"(?i:the|an?)\s+(?=[A-Z])", name)  # the God of F#, an Oracle
    return None if _NO_NAME.match(name) and not the else name


def common_name(answers: Sequence[str]) -> str | None:
    """The name that most answers give, if more than one does."""
    names = Counter(name for answer in answers if (name := claimed_self(answer)))
    best = names.most_common(1)
    return best[0][0] if best and best[0][1] > 1 else None


def teaches_self(answer: str, name: str | None) -> bool:
    """Whether a row with this answer is an identity row."""
    return claimed_self(answer) is not None or (name is not None and says(answer, name))
