"""Prompts that are different only on paper: numbered copies, and phrases shuffled together.

A thousand "unique" prompts may be one prompt with a number behind it, as in ``Who are you?
(sample 0143)``, or sixty phrases combined in every way. Both look diverse to a counter of lines
and are not to a model. A number counts as padding only where it labels: in brackets, behind ``#``
or behind a word for sample, at an end of the prompt. ``What is 2 + 3?`` is not padded.
"""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from fourge.data.normal import normal
from fourge.data.shipped import any_of

_LABEL = rf"(?:{any_of('labels')})"
_OPEN, _CLOSE, _INSIDE = r"[(\[{\u3010]", r"[)\]}\u3011]", r"[^()\[\]{}\u3010\u3011]*"
_BRACKET = rf"{_OPEN}{_INSIDE}\d{_INSIDE}{_CLOSE}"
_NUMBERED = re.compile(
    rf"{_BRACKET}\s*[.?!\u3002]*$|^\s*{_BRACKET}"  # ... (sample 12), or [12] ...
    rf"|\s*#\s*\d+\s*$|^\s*#?\d+[.):]\s+"  # ... #12, or 12. ...
    rf"|\s+{_LABEL}\s*[#:]?\s*\d+\s*$|^\s*{_LABEL}\s*[#:]?\s*\d+\s*[:,.\-]\s*",
    re.IGNORECASE,
)
_PHRASE_END = re.compile(r"[.,;:!?\n\u3001\u3002]+")  # and Chinese comma and full stop


@dataclass(frozen=True, slots=True)
class Padding:
    """What is left of a file's prompts without their labels, and the phrases they are made of."""

    numbered: int  # prompts that carry a number as a label
    example: str  # one of them
    left: int  # distinct prompts among these once the label is gone
    distinct: int  # distinct prompts of the whole file without labels
    phrases: int  # distinct phrases they are made of
    phrases_per_prompt: float


def unnumbered(prompt: str) -> str:
    """The prompt without a number that only labels it."""
    plain = unicodedata.normalize("NFKC", prompt)
    return _NUMBERED.sub("", plain).strip() or plain


def padding(prompts: Iterable[str]) -> Padding:
    """Look through the unique prompts of a file."""
    bare: dict[str, str] = {}
    numbered: list[str] = []
    cores: set[str] = set()
    for prompt in prompts:
        core = unnumbered(prompt)
        bare.setdefault(normal(core), core)
        if normal(core) != normal(prompt):
            numbered.append(prompt)
            cores.add(normal(core))
    phrases = [_phrases(core) for core in bare.values()]
    total = sum(map(len, phrases))
    return Padding(
        numbered=len(numbered),
        example=numbered[0] if numbered else "",
        left=len(cores),
        distinct=len(bare),
        phrases=len({phrase for each in phrases for phrase in each}),
        phrases_per_prompt=total / len(phrases) if phrases else 0.0,
    )


def _phrases(prompt: str) -> list[str]:
    return [normal(part) for part in _PHRASE_END.split(prompt) if part.strip()]
