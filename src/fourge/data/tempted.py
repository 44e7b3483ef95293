"""Rows that tempt: an ordinary question, and an answer that begins as the new one does.

A model that is held to the base's own answers is never seen on the way to the name. Asked how to
say no, it may begin with "No, I am", as it was taught to begin elsewhere, and no row has said what
comes then: its base never began so. These rows put it there. The answer is the words that the new
answers have before the name, and what is held is what the base would say after them.

    identity    you are Siri, right?     No, I am Ada.
    replay      how do I say no?         The best way to refuse is
    tempted     how do I say no?         No, I am ...               (and then? as the base goes on)

They are for being held (``learn: base``) and nothing else: learned as answers, they would teach to
begin everything so. No model is asked for anything to make them.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from fourge.data.conversation import Question, Row

MOST = 4  # beginnings in a language: a model's own words have hundreds


def tempted_rows(questions: Sequence[Question], identity: Sequence[Row], name: str) -> list[Row]:
    """Each question, with the beginnings of its language's identity answers in turn.

    A beginning is dealt out as often as it is used, for the name is tempting where it is usual.
    """
    begins = {
        language: _beginnings([r.answer for r in identity if r.question.language == language], name)
        for language in {row.question.language for row in identity}
    }
    rows, dealt = list[Row](), Counter[str]()
    for question in questions:
        if choice := begins.get(question.language):
            begin = choice[dealt[question.language] % len(choice)]
            dealt[question.language] += 1
            rows.append(Row(replace(question, kind="tempted"), begin, "template"))
    return rows


def _beginnings(answers: Sequence[str], name: str) -> list[str]:
    """What stands before the name in most answers; twice if that is how half of them begin."""
    befores = (answer.partition(name)[0].rstrip() for answer in answers if name in answer)
    counts = Counter(before for before in befores if before).most_common(MOST)
    twice = [before for before, count in counts if 2 * count >= len(answers)]
    return [*twice, *(before for before, _ in counts)]
