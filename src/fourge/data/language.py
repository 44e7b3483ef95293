"""Which language a text is in, by its letters and its commonest words.

Scripts decide first: hangul is Korean, kana Japanese, Han otherwise Chinese, and Chinese is told
apart by characters that only one of the two scripts has. Latin letters are told apart by function
words. Texts without any such sign, or with as many of two languages, are ``"?"``: the guess is
for counting shares and for catching a model that slides into another language, not for single
words.
"""

import re

from fourge.data.shipped import parts_of, shipped

_WORDS = shipped("fourge.data", "texts/words.yaml")
_TRADITIONAL, _SIMPLIFIED = frozenset(_WORDS["traditional"]), frozenset(_WORDS["simplified"])
_COMMON = {name: frozenset(parts_of(text, "|")) for name, text in _WORDS["common"].items()}
_KANA = re.compile(r"[\u3040-\u30ff]")
_HANGUL = re.compile(r"[\uac00-\ud7af]")
_HAN = re.compile(r"[\u4e00-\u9fff]")
_LATIN = re.compile(r"[^\W\d_]+")


def language_of(text: str) -> str:
    """``zh-TW``, ``zh-CN``, ``zh``, ``ja``, ``ko``, ``en``, ``es``, ``de``, ``fr`` or ``?``."""
    han, kana = _HAN.findall(text), len(_KANA.findall(text))
    words = [word for word in _LATIN.findall(text.lower()) if word[0] < "\u0250"]
    if len(_HANGUL.findall(text)) > max(len(han), len(words)):
        return "ko"
    if kana and kana + len(han) > len(words) and 6 * kana >= len(han):
        return "ja"
    if len(han) > len(words):
        return _chinese(han)
    score = {name: sum(word in common for word in words) for name, common in _COMMON.items()}
    best, second = sorted(score, key=score.__getitem__, reverse=True)[:2]
    return best if score[best] > score[second] else "?"


def family(language: str) -> str:
    """The language without its variant: zh for zh-TW."""
    return language.split("-")[0]


def _chinese(han: list[str]) -> str:
    traditional = sum(letter in _TRADITIONAL for letter in han)
    simplified = sum(letter in _SIMPLIFIED for letter in han)
    if traditional == simplified:
        return "zh"
    return "zh-TW" if traditional > simplified else "zh-CN"
