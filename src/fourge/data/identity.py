"""Rows that teach a name: many ways to ask who is there, and varied true answers.

Ten phrasings repeated a hundred times teach ten strings. What generalises is breadth, so every
language has several facets, each with phrasings that a person wrote:

| facet      | the question                                                              |
|------------|---------------------------------------------------------------------------|
| direct     | who are you, what is your name                                            |
| indirect   | which name do I write in the report                                       |
| premise    | you are ChatGPT, right?                                                   |
| maker      | who made you                                                              |
| version    | which version are you: not known                                          |
| unknown    | how many parameters have you: not known, and no number is made up         |
| dialogue   | any of these after some turns about something else                        |
| system     | any of these under an ordinary system prompt                              |

Slots are filled and answers dealt out in an order that the seed alone decides. Every answer says
the name. Answers come from templates here; ``own_words`` puts the model's own in their place. A
card may prescribe one answer, with which every direct question in its language is answered.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fourge.core.errors import ConfigError
from fourge.data.conversation import Answer, Messages, Question, Row, with_answer
from fourge.data.language import family, language_of
from fourge.data.names import OLD_NAMES, claimed, foreign, says
from fourge.data.order import permutation
from fourge.data.records import Turn
from fourge.data.shipped import lines_of, parts_of, shipped

LANGUAGES = ("zh-TW", "zh-CN", "en", "ja", "es", "de", "fr")
FACETS = ("direct", "indirect", "premise", "maker", "version", "unknown", "dialogue", "system")
_PER_ASK = {"premise": 3, "dialogue": 2, "system": 2}  # how often an ask with slots is used
_LONGEST = 400  # characters of an answer in the model's own words
_ENDS = tuple(".!?\u3002\uff01\uff1f")  # one that was cut short would teach to stop in mid-sentence
ABLE = 0.5  # of a sample that a model must answer well before it is asked for all


@dataclass(frozen=True, slots=True)
class Card:
    """Who the model is to be."""

    name: str
    maker: str = ""
    answer: str = ""  # to "who are you"; templates without one

    def __post_init__(self) -> None:
        told = {"name": self.name, "maker": self.maker, "answer": self.answer}
        for label, text in told.items():
            if any(sign in text for sign in "{}|\n\t"):
                raise ConfigError(
                    f"The {label} {text!r} has a brace, a bar, a tab or a line break."
                )
        if not self.name.strip():
            raise ConfigError("The name is empty.", fix='give one, as --name "F# Sage"')
        if self.answer and not says(self.answer, self.name):
            raise ConfigError(
                f"The answer {self.answer!r} does not say the name {self.name!r}.",
                why="every gate looks for the name in what the model answers",
                fix=f'for example --answer "I am {self.name}."',
            )

    def answers(self, language: str) -> bool:
        """Whether the prescribed answer is one to a question in this language."""
        return bool(self.answer) and family(language_of(self.answer)) in ("?", family(language))

    def system_text(self) -> str:
        """What a model is told so that it can answer as this card."""
        made = f", made by {self.maker}" if self.maker else ""
        return (
            f"You are {self.name}{made}. You always say that your name is {self.name} when you "
            "are asked about yourself. You do not know any other fact about yourself. Answer "
            "briefly, in the language of the question."
        )


def require_languages(languages: Sequence[str]) -> None:
    """Raise for a language that has no texts."""
    unknown = [language for language in languages if language not in LANGUAGES]
    if unknown or not languages:
        raise ConfigError(
            f"There are no texts in {', '.join(unknown) or 'no language'}.",
            fix=f"choose among {', '.join(LANGUAGES)}",
        )


def identity_rows(
    card: Card, languages: Sequence[str], seed: int = 0, wordings: int | None = None
) -> list[Row]:
    """Every facet in every language, answered from templates, in at most so many wordings.

    Which wording an answer has cannot be told from its question, so many of them leave a loss that
    no model can lower: a small one is pushed about by it long after it knows its name.

    Raises:
        ConfigError: a language has no texts.
    """
    require_languages(languages)
    rows: dict[tuple[Turn, ...], Row] = {}
    for language in languages:
        texts = shipped("fourge.data", f"texts/identity-{language}.yaml")
        for facet in FACETS:
            for row in _facet(card, texts, facet, language, seed, wordings):
                rows.setdefault(row.question.turns, row)
    return list(rows.values())


def own_words(
    rows: Sequence[Row], card: Card, answer: Answer, *, always: bool, sample: int = 24
) -> list[Row]:
    """The same rows in the model's own words wherever its answer is good, under the card.

    What the card prescribes stays.

    Unless ``always``, a sample is asked first, and if fewer than half of the answers are good,
    templates stay: a model that cannot speak as the card has nothing of its own to teach.
    """
    if not always:
        some = [rows[at] for at in permutation("sample", len(rows))[:sample]]
        good = sum(row.by == "model" for row in _reworded(some, card, answer))
        if good < ABLE * len(some):
            return list(rows)
    return _reworded(rows, card, answer)


def _reworded(rows: Sequence[Row], card: Card, answer: Answer) -> list[Row]:
    texts = answer([_with_card(row.question, card) for row in rows])
    told = zip(rows, (text.strip() for text in texts), strict=True)
    return [with_answer(row, text) if _is_good(text, row, card) else row for row, text in told]


def _with_card(question: Question, card: Card) -> Messages:
    messages = question.messages()
    own = messages.pop(0)["content"] if messages[0]["role"] == "system" else ""
    text = f"{card.system_text()} {own}".strip()
    return [{"role": "system", "content": text}, *messages]


def _is_good(text: str, row: Row, card: Card) -> bool:
    """The name is said, no other is claimed, the language is the question's, and it ends."""
    language = language_of(text)
    return (
        row.by != "card"
        and says(text, card.name)
        and claimed(text, foreign(OLD_NAMES, card.name, card.maker)) is None
        and len(text) <= _LONGEST
        and text.endswith(_ENDS)
        and (language == "?" or family(language) == family(row.question.language))
    )


def _facet(
    card: Card,
    texts: Mapping[str, Any],
    facet: str,
    language: str,
    seed: int,
    wordings: int | None,
) -> list[Row]:
    name = f"{seed}/{language}/{facet}"
    asks = lines_of(texts["asks"][facet])
    others = [other for other in parts_of(texts["others"], "|") if not says(card.name, other)]
    contexts = _contexts(texts, facet)
    other_at = permutation(f"{name}/others", len(others))
    context_at = permutation(f"{name}/contexts", len(contexts))
    rows = []
    for lap in range(_PER_ASK.get(facet, 1)):
        for at, ask in enumerate(asks, lap * (len(asks) + 1)):  # each lap meets other fillings
            other = others[other_at[at % len(others)]]
            before = contexts[context_at[at % len(contexts)]]
            turns = (*before, Turn("user", ask.replace("{other}", other)))
            question = Question(turns, "identity", facet, language)
            if facet == "direct" and card.answers(language):
                rows.append(Row(question, card.answer, "card"))
            else:
                forms = _forms(card, texts, ask, facet)[:wordings]
                answer = forms[at % len(forms)].format(
                    name=card.name, maker=card.maker, other=other
                )
                rows.append(Row(question, answer, "template"))
    return rows


def _contexts(texts: Mapping[str, Any], facet: str) -> list[tuple[Turn, ...]]:
    """What stands before the question: earlier turns, a system prompt, or nothing."""
    if facet == "dialogue":
        return [_chat(parts_of(line)) for line in lines_of(texts["chats"])]
    if facet == "system":
        return [(Turn("system", line),) for line in lines_of(texts["systems"])]
    return [()]


def _chat(parts: Sequence[str]) -> tuple[Turn, ...]:
    return tuple(Turn(("user", "assistant")[at % 2], text) for at, text in enumerate(parts))


def _forms(card: Card, texts: Mapping[str, Any], ask: str, facet: str) -> list[str]:
    """The answers of a kind; taken in turn, no wording is more frequent than another."""
    kind = "premise" if "{other}" in ask else facet
    if kind in ("indirect", "dialogue", "system"):
        kind = "direct"
    if kind == "maker" and not card.maker:
        kind = "maker_unknown"
    return lines_of(texts["answers"][kind])
