"""What a file's prompts are about, by the words that most of them share.

The word (of Latin letters) or pair of Han characters that stands in the most prompts is a topic;
its prompts are set aside, and the next is looked for among the rest, until no word unites a
fiftieth of the file. Crude, and enough to see that "general data" is all UFO.
"""

import re
from collections import Counter
from collections.abc import Sequence

from fourge.data.shipped import words

_TERM = re.compile(r"[^\W\d_]{3,}")
_HAN = re.compile(r"[\u4e00-\u9fff]+")
_STOP = frozenset(words("topicless"))
_FUNCTION = frozenset(words("topicless_characters")[0])
_SHARE = 0.02
MOST = 8


def topics(prompts: Sequence[str]) -> dict[str, int]:
    """How many prompts each shared term has, the commonest first; the rest is ``other``."""
    terms = [_terms(prompt) for prompt in prompts]
    found: dict[str, int] = {}
    while len(found) < MOST:
        count = Counter(term for each in terms for term in each)
        best = max(count, key=lambda term: (count[term], term), default=None)
        if best is None or count[best] < max(2, _SHARE * len(prompts)):
            break
        found[best] = count[best]
        terms = [each for each in terms if best not in each]
    if terms:
        found["other"] = len(terms)
    return found


def _terms(prompt: str) -> set[str]:
    text = prompt.lower()
    latin = {word for word in _TERM.findall(text) if word[0] < "\u0250"}
    han = {run[at : at + 2] for run in _HAN.findall(text) for at in range(len(run) - 1)}
    return latin.union(pair for pair in han if not _FUNCTION & set(pair)) - _STOP
