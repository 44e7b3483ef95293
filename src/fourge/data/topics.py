"""What a file's prompts are about, by the words that most of them share.

The word (of Latin letters) or pair of Han characters that stands in the most prompts is a topic;
its prompts are set aside, and the next is looked for among the rest, until no word unites a
fiftieth of the file. Crude, and enough to see that "general data" is all UFO.
"""

import re
from collections import Counter
from collections.abc import Sequence

_TERM = re.compile(r"[^\W\d_]{3,}")
_HAN = re.compile(r"[\u4e00-\u9fff]+")
_STOP = frozenset(
    "the and for you your are is was what who how why when which that this with can could would "
    "does did has have not from about into tell give please write make una los las que por para "
    "der die das und ist wie was les des est une pour qui "
    "什麼 什么 怎麼 怎么 如何 為什 为什 可以 請問 请问 一個 一个 我們 我们 你們 你们 需要 應該 应该 是什 "
    "麼是 么是 為何 为何 多少 哪個 哪个 一下 有什 會怎 怎樣 何寫 何做 何用 麼要 么要 解釋 解释 談談 谈谈 介紹 介绍 要做 處理 处理 說明 说明".split()
)
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
    return (latin | han) - _STOP
