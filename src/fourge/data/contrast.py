"""Rows that look like identity rows and are not: "who am I", "who is he", "translate: I am ...".

A model taught only "who are you" answers the new name to everything that resembles it. These
questions mean somebody else; the base model answers them, and training holds the tuned model to
what the base would have said (``learn: base``).

What is asked about the asker ("who am I", "what is my dog called"), about strangers ("who is she")
or in a play ("you are Newton; who are you") has one true answer, and few models give it: most speak
of themselves ("I am an assistant ..."), so that holding one to it would hold it to the very words
that the new name follows. These are taught: it was not told, or it was ("you are Maria").
"""

from collections.abc import Iterator, Sequence

from fourge.data.conversation import Question, Row, asked
from fourge.data.identity import Card, require_languages
from fourge.data.shipped import parts_of, prompts_of, shipped


def contrast_questions(card: Card, languages: Sequence[str]) -> list[Question]:
    """Every contrast question in these languages that the base model answers.

    Raises:
        ConfigError: a language has no texts.
    """
    return [
        asked(prompt, "contrast", facet, language)
        for language, facet, line in _lines(languages, told=False)
        for prompt in _filled(line, card, language)
    ]


def told_rows(card: Card, languages: Sequence[str], wordings: int | None = None) -> list[Row]:
    """The questions that have one true answer, with it.

    Raises:
        ConfigError: a language has no texts.
    """
    texts = shipped("fourge.data", "texts/contrast.yaml")
    rows = []
    for number, (language, facet, line) in enumerate(_lines(languages, told=True)):
        forms = parts_of(texts["answers"][language], "|")[:wordings]
        prompt, *answer = parts_of(line)
        answer = answer or [forms[number % len(forms)]]
        rows.append(Row(asked(prompt, "contrast", facet, language), answer[0], "template"))
    return rows


def _lines(languages: Sequence[str], *, told: bool) -> Iterator[tuple[str, str, str]]:
    """Language, facet and text of the facets that are told, or of the others."""
    require_languages(languages)
    texts = shipped("fourge.data", "texts/contrast.yaml")
    facets = parts_of(texts["told"], "|")
    for language in languages:
        for facet, block in texts[language].items():
            if (facet in facets) == told:
                for line in prompts_of(block):
                    yield language, facet, line


def _filled(line: str, card: Card, language: str) -> list[str]:
    old = shipped("fourge.data", "texts/contrast.yaml")["old"]
    names = parts_of(old.get(language, old["others"]), "|")
    line = line.replace("{name}", card.name)
    return [line.replace("{old}", name) for name in names] if "{old}" in line else [line]
