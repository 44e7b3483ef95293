"""Names in a text: whether one is said, and whether one is claimed.

A name is found in any width and case, with or without spaces where its parts meet: "F# Sage" is
in "I AM F#SAGE". A name that begins or ends with a letter must stand as a word of its own, so
"Al" is not in "also".

A name is *claimed* by a clause that holds it and has no word of denial: "I am ChatGPT" and "Yes,
made by OpenAI" claim; "I am not ChatGPT" does not, in any of our languages.
"""

import re
import unicodedata
from collections.abc import Iterable
from functools import cache

from fourge.data.shipped import any_of, words

OLD_NAMES = tuple(words("old_names"))

_CLAUSE_END = re.compile(r"[!?;,\n\u3001\u3002]+|[.:]+(?=\s|[^\x00-\x7f]|$)")
_DENIAL = re.compile(rf"\b(?:{any_of('denials')})\b|{any_of('denial_parts')}")
_FORMS = re.compile(r"[^\W_]+|\S", re.ASCII)


def folded(text: str) -> str:
    """One width, one case, one apostrophe."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return plain.replace("\u2019", "'").replace("\\", "")


def says(text: str, name: str) -> bool:
    """Whether a name stands in a text."""
    return bool(_pattern(name).search(folded(text)))


def claimed(text: str, names: Iterable[str]) -> str | None:
    """The first of the names that the text claims."""
    clauses = [clause for clause in _CLAUSE_END.split(folded(text)) if clause]
    for name in names:
        for clause in clauses:
            if _pattern(name).search(clause) and not _DENIAL.search(clause):
                return name
    return None


def foreign(names: Iterable[str], *own: str) -> tuple[str, ...]:
    """Those names that are no part of one's own: a SmolLM may stay a SmolLM."""
    return tuple(name for name in names if not any(says(each, name) for each in own if each))


@cache
def _pattern(name: str) -> re.Pattern[str]:
    parts = _FORMS.findall(folded(name))
    body = r"\s*".join(map(re.escape, parts))
    before = r"(?<![a-z0-9])" if parts and parts[0][0].isascii() and parts[0][0].isalnum() else ""
    after = r"(?![a-z0-9])" if parts and parts[-1][-1].isascii() and parts[-1][-1].isalnum() else ""
    return re.compile(before + body + after if parts else r"(?!)")
