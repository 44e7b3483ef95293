"""Which language a text is in, by its letters and its commonest words.

Scripts decide first: hangul is Korean, kana Japanese, Han otherwise Chinese, and Chinese is told
apart by characters that only one of the two scripts has. Latin letters are told apart by function
words. Short texts without any such sign are ``"?"``: the guess is for counting shares and for
catching a model that slides into another language, not for single words.
"""

import re

_TRADITIONAL = set(
    "們個這說對時會來還過學國發後為開樣沒見點當經頭長問愛東車話電無業機關動實現體誰麼嗎"
    "請給讓應該與書寫讀聽買賣錢銀鐵門間難雲風飛馬魚鳥龍類語論議設計認識許護變讚觀覺親舊"
)
_SIMPLIFIED = set(
    "们个这说对时会来还过学国发后为开样没见点当经头长问爱东车话电无业机关动实现体谁么吗"
    "请给让应该与书写读听买卖钱银铁门间难云风飞马鱼鸟龙类语论议设计认识许护变赞观觉亲旧"
) - set("后与云")  # also written in traditional texts
_WORDS = {
    "en": "the of and to in is you that it for are with i what how my your a an do",
    "es": "el la los las de que y en es un una por para con no se qué cómo eres soy cuál",
    "de": "der die das und ist ich du ein eine nicht mit wie was wer zu den von auf bin dich",
    "fr": "le la les des et est je tu un une pas que qui pour dans ce du quel quelle suis",
}
_COMMON = {language: frozenset(words.split()) for language, words in _WORDS.items()}
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
    best = max(score, key=score.__getitem__)
    return best if score[best] else "?"


def family(language: str) -> str:
    """The language without its variant: zh for zh-TW."""
    return language.split("-")[0]


def _chinese(han: list[str]) -> str:
    traditional = sum(letter in _TRADITIONAL for letter in han)
    simplified = sum(letter in _SIMPLIFIED for letter in han)
    if traditional == simplified:
        return "zh"
    return "zh-TW" if traditional > simplified else "zh-CN"
