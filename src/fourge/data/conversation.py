"""Rows on their way into a file: a conversation up to a question, its answer, and what it is.

They are written as chat messages, one JSON object a line, with what they are beside them; the
readers (``rows``) pass over keys that only describe.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fourge.core.files import whole_file
from fourge.data.records import Turn

Messages = list[dict[str, str]]
Answer = Callable[[Sequence[Messages]], Sequence[str]]  # a model's answers, in the same order


@dataclass(frozen=True, slots=True)
class Question:
    """A conversation whose last turn is the user's."""

    turns: tuple[Turn, ...]
    kind: str  # identity, contrast or replay
    facet: str
    language: str

    @property
    def prompt(self) -> str:
        """What is asked, without what went before."""
        return self.turns[-1].content

    def messages(self) -> Messages:
        return [{"role": turn.role, "content": turn.content} for turn in self.turns]


@dataclass(frozen=True, slots=True)
class Row:
    """A question and its answer."""

    question: Question
    answer: str
    by: str  # "template", "model" or "card"

    def as_json(self) -> str:
        question = self.question
        said = [*question.messages(), {"role": "assistant", "content": self.answer}]
        about = {"kind": question.kind, "facet": question.facet, "language": question.language}
        return json.dumps({"messages": said, **about, "by": self.by}, ensure_ascii=False)


def answered(questions: Sequence[Question], answer: Answer) -> list[Row]:
    """What the model says to each; questions it leaves without a word are left out."""
    texts = answer([question.messages() for question in questions])
    pairs = zip(questions, texts, strict=True)
    return [Row(question, text.strip(), "model") for question, text in pairs if text.strip()]


def asked(prompt: str, kind: str, facet: str, language: str) -> Question:
    """A question with nothing before it."""
    return Question((Turn("user", prompt),), kind, facet, language)


def write_rows(rows: Iterable[Row], path: Path, *, overwrite: bool) -> None:
    """One JSON object a line.

    Raises:
        OutputError: the file exists, or cannot be written.
    """
    with whole_file(path, overwrite=overwrite) as temporary:
        text = "".join(f"{row.as_json()}\n" for row in rows)
        temporary.write_text(text, encoding="utf-8")


def with_answer(row: Row, text: str) -> Row:
    """The same question, answered in the model's own words."""
    return replace(row, answer=text, by="model")
