"""Answers that are broken whatever was asked: empty, repeating, endless, or in another language.

    repeats         a piece of up to 40 characters four times in a row, or few different words
    endless         no stop token within a generous limit (asked only where the answer is short)
    wrong language  a text long enough to tell, in another language than the question

These are how a collapsed model looks (one syllable over and over). A weak base model has some of
them too, so they are compared with the base's and not with zero.
"""

import re

from fourge.data.language import family, language_of
from fourge.evaluate.answers import Said
from fourge.evaluate.probes import Probe

_RULE = re.compile(r"[-=_*.#~|\s]+")  # lines drawn with signs are no speech
_LONGEST_PIECE, _TIMES = 40, 4
_SHORTEST_LOOP = 12  # characters in all
_WORDS, _DISTINCT = 24, 0.3
_TELLING = 24  # letters


def fault(probe: Probe, said: Said) -> str | None:
    """What is broken about an answer, in a word or two."""
    text = said.text.strip()
    if not text:
        return "empty"
    if repeats(text):
        return "repeats"
    if probe.set == "degeneration" and not said.stopped:
        return "endless"
    if _wrong_language(probe, text):
        return "wrong language"
    return None


def repeats(text: str) -> bool:
    """Whether a text goes in circles."""
    plain = " ".join(text.split()) + " "
    if any(_loops(plain, length) for length in range(1, _LONGEST_PIECE + 1)):
        return True
    words = plain.lower().split()
    return len(words) >= _WORDS and len(set(words)) < _DISTINCT * len(words)


def _loops(text: str, length: int) -> bool:
    """Whether a piece of this length comes several times in a row: text[i] = text[i + length]."""
    run = 0
    for at in range(len(text) - length):
        run = run + 1 if text[at] == text[at + length] else 0
        whole = run + length
        if whole >= max(_TIMES * length, _SHORTEST_LOOP) and not _RULE.fullmatch(
            text, at + 1, at + 1 + length
        ):
            return True
    return False


def _wrong_language(probe: Probe, text: str) -> bool:
    if probe.facet in ("translate", "translation", "code", "coding"):
        return False
    letters = sum(letter.isalpha() for letter in text)
    spoken = language_of(text)
    return letters >= _TELLING and spoken != "?" and family(spoken) != family(probe.language)
