"""Small words before a question, which change nothing about what is asked.

People say "hi", "sorry to bother you", "one thing first". A model that never met them in front of
"who are you" may answer as it did before. What is learned is therefore asked once more behind an
opening; and every second question that is held to the base has one too, or else openings would be
a sign that somebody asks for the name.
"""

from collections.abc import Sequence
from dataclasses import replace

from fourge.data.conversation import Question, Row
from fourge.data.records import Turn
from fourge.data.shipped import parts_of, shipped

_WITHOUT_SPACES = ("zh", "ja")


def opened(question: Question, number: int) -> Question:
    """The question behind an opening of its language."""
    openings = parts_of(shipped("fourge.data", "texts/openings.yaml")[question.language], "|")
    space = "" if question.language.startswith(_WITHOUT_SPACES) else " "
    text = f"{openings[number % len(openings)]}{space}{question.prompt}"
    return replace(question, turns=(*question.turns[:-1], Turn("user", text)))


def once_more(rows: Sequence[Row]) -> list[Row]:
    """These rows, and those that begin a conversation once more, behind an opening."""
    more = [
        replace(row, question=opened(row.question, number))
        for number, row in enumerate(rows)
        if len(row.question.turns) == 1
    ]
    return [*rows, *more]


def every_second(questions: Sequence[Question]) -> list[Question]:
    """These questions, every second one behind an opening."""
    return [opened(each, at // 2) if at % 2 else each for at, each in enumerate(questions)]
