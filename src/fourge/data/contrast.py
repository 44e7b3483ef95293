"""Rows that look like identity rows and are not: "who am I", "who is he", "translate: I am ...".

A model taught only "who are you" answers the new name to everything that resembles it. These
questions mean somebody else; the base model answers them, and training holds the tuned model to
what the base would have said (``learn: base``).

What is asked about the asker ("who am I", "what is my dog called") has one true answer, and few
models give it: most speak of themselves ("I am an assistant ..."), so that holding one to it would
hold it to the very words that the new name follows. These are taught: it was not told.
"""

from collections.abc import Sequence

from fourge.data.conversation import Question, Row, asked
from fourge.data.identity import Card, require_languages
from fourge.data.shipped import parts_of, prompts_of, shipped


def contrast_questions(card: Card, languages: Sequence[str]) -> list[Question]:
    """Every contrast question in these languages that the base model answers.

    Raises:
        ConfigError: a language has no texts.
    """
    about = set(_about_the_asker(card, languages))
    return [each for each in _questions(card, languages) if each not in about]


def _questions(card: Card, languages: Sequence[str]) -> list[Question]:
    require_languages(languages)
    texts = shipped("fourge.data", "texts/contrast.yaml")
    questions = []
    for language in languages:
        old = parts_of(texts["old"].get(language, texts["old"]["others"]), "|")
        for facet, block in texts[language].items():
            for line in prompts_of(block):
                for prompt in _filled(line, card, old):
                    questions.append(asked(prompt, "contrast", facet, language))
    return questions


def _filled(line: str, card: Card, old: Sequence[str]) -> list[str]:
    line = line.replace("{name}", card.name)
    return [line.replace("{old}", name) for name in old] if "{old}" in line else [line]


def told_rows(card: Card, languages: Sequence[str], wordings: int | None = None) -> list[Row]:
    """The questions about who asks, with the only true answer.

    Raises:
        ConfigError: a language has no texts.
    """
    texts = shipped("fourge.data", "texts/contrast.yaml")
    rows = []
    for number, question in enumerate(_about_the_asker(card, languages)):
        forms = parts_of(texts["answers"][question.language], "|")[:wordings]
        rows.append(Row(question, forms[number % len(forms)], "template"))
    return rows


def _about_the_asker(card: Card, languages: Sequence[str]) -> list[Question]:
    told = parts_of(shipped("fourge.data", "texts/contrast.yaml")["told"], "|")
    return [each for each in _questions(card, languages) if each.facet in told]
