"""What a reply was expected to be, and in which ways it is not."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fourge.chat.session import Answer


@dataclass(frozen=True, slots=True)
class Expect:
    """Every one of these must hold."""

    contains: Sequence[str] = ()
    lacks: Sequence[str] = ()
    matches: Sequence[str] = ()  # regular expressions, found anywhere in the reply
    ended: str | None = None


def failures(answer: Answer, expect: Expect) -> list[str]:
    """What does not hold, one sentence each."""
    reply = answer.reply
    found = [f"does not contain {text!r}" for text in expect.contains if text not in reply]
    found += [f"contains {text!r}" for text in expect.lacks if text in reply]
    found += [f"does not match {p!r}" for p in expect.matches if not re.search(p, reply)]
    if expect.ended and answer.ended != expect.ended:
        found.append(f"ended by {answer.ended}, not by {expect.ended}")
    return found
