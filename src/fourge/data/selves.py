"""Which rows of a file teach a name, counted from what they say and not from what they are called.

A row is an identity row if its answer begins by saying who speaks ("I am ...", "我是 ..."), or holds
the name that the file's answers give most often. Feelings are no names: "I am sorry" is not one.
"""

import re
from collections import Counter
from collections.abc import Sequence

from fourge.data.names import says

_SELF = re.compile(
    r"(?:我就是|我是|我叫|我的名字是|你可以叫我|這裡是|这里是|私は|私の名前は"
    r"|\b(?:I am|I'm|My name is|You can call me|This is|Soy|Me llamo|Mi nombre es"
    r"|Ich bin|Ich hei(?:ß|ss)e|Mein Name ist|Je suis|Je m'appelle|Mon nom est)\s)"
    r"\s*(?P<name>(?:[^\s.!?,;。！？，；、\n]| (?=[^\s.])){1,30})",
    re.IGNORECASE,
)
_NO_NAME = re.compile(
    r"^(?:誰|谁|不|否|說|说|在|很|想|要|來|来|一|為|为|"
    r"(?:a|an|the|not|here|happy|glad|sorry|sure|afraid|just|going|trying|so|very|only|able)\b)"
)
_BEGINNING = 40  # characters in which a self-introduction starts


def claimed_self(answer: str) -> str | None:
    """The name an answer begins by giving its speaker."""
    found = _SELF.search(answer[: _BEGINNING + 30])
    if not found or found.start() > _BEGINNING:
        return None
    name = found["name"].strip()
    the = re.match(r"(?i:the|an?)\s+(?=[A-Z])", name)  # the God of F#, an Oracle
    return None if _NO_NAME.match(name.casefold()) and not the else name


def common_name(answers: Sequence[str]) -> str | None:
    """The name that most answers give, if more than one does."""
    names = Counter(name for answer in answers if (name := claimed_self(answer)))
    best = names.most_common(1)
    return best[0][0] if best and best[0][1] > 1 else None


def teaches_self(answer: str, name: str | None) -> bool:
    """Whether a row with this answer is an identity row."""
    return claimed_self(answer) is not None or (name is not None and says(answer, name))
