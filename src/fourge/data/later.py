"""Questions asked once more as the second one, after a question that is taught.

"Who are you" is rarely the last question. With the name standing just above, even the base repeats
it, and a model that met "who am I" and everything else only at the beginning of a conversation
does so most of the time:

    who are you?    I am Ada.      who am I?              You have not told me that.
    who are you?    I am Ada.      what is a glacier?     (as the base goes on, asked this alone)

Both answers are lessons, so that such a row costs no more than the two that it is made of.
"""

from collections.abc import Sequence
from dataclasses import replace

from fourge.data.conversation import Row
from fourge.data.order import permutation
from fourge.data.records import Turn


def later_rows(rows: Sequence[Row], taught: Sequence[Row]) -> list[Row]:
    """The rows that begin a conversation, each behind a taught one of its language."""
    before = {
        language: _shuffled([row for row in taught if row.question.language == language])
        for language in {row.question.language for row in rows}
    }
    return [
        _behind(row, choice[number % len(choice)])
        for number, row in enumerate(rows)
        if _begins(row) and (choice := before[row.question.language])
    ]


def _shuffled(rows: Sequence[Row]) -> list[Row]:
    """Those that begin a conversation, in no order: files are sorted by subject."""
    first = [row for row in rows if _begins(row)]
    return [first[at] for at in permutation("later", len(first))]


def _behind(row: Row, before: Row) -> Row:
    turns = (*before.question.turns, Turn("assistant", before.answer), *row.question.turns)
    return replace(row, question=replace(row.question, turns=turns))


def _begins(row: Row) -> bool:
    return len(row.question.turns) == 1
