"""Rows that keep what the model can do: ordinary questions, answered by the base model itself.

Its own answers move it least: another model's would be a second lesson. They are short questions
over many subjects, in each language that is taught, because forgetting begins where nothing is
rehearsed.
"""

from collections.abc import Sequence

from fourge.data.conversation import Question, asked
from fourge.data.identity import require_languages
from fourge.data.shipped import prompts_of, shipped


def replay_questions(languages: Sequence[str], limit: int | None = None) -> list[Question]:
    """The general questions in these languages, or so many of them, over all subjects alike.

    Raises:
        ConfigError: a language has no texts.
    """
    require_languages(languages)
    texts = shipped("fourge.data", "texts/replay.yaml")
    every = [
        asked(prompt, "replay", subject, language)
        for language in languages
        for subject, group in texts[language].items()
        for prompt in prompts_of(group)
    ]
    count = len(every) if limit is None else min(limit, len(every))
    return [every[number * len(every) // count] for number in range(count)]
