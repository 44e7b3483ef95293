"""Rows that look like identity rows and are not: "who am I", "who is he", "translate: I am ...".

A model taught only "who are you" answers the new name to everything that resembles it. These
questions mean somebody else; the base model answers them, and training holds the tuned model to
what the base would have said (``learn: base``).
"""

from collections.abc import Sequence

from fourge.data.conversation import Question, asked
from fourge.data.identity import Card, require_languages
from fourge.data.shipped import parts_of, prompts_of, shipped


def contrast_questions(card: Card, languages: Sequence[str]) -> list[Question]:
    """Every contrast question in these languages.

    Raises:
        ConfigError: a language has no texts.
    """
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
